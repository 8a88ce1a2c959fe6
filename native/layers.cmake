# The sources of the core, layer by layer: what stands in one may include what stands above it.

set(system_sources clock directory held_file)
set(text_sources json_check names)
set(spool_sources settings spool spool_marker tables)
set(writing_sources blocks_ahead codec lanes line_formatter open_lines trace_file trace_parts trace_writer
                    unfinished_spans)
set(reading_sources adoption live_spool self_time spool_copy spool_view waiting_events)
set(recording_sources drain dump_signal flight kept_units runtime session session_blobs thread)
set(tensor_sources careful_sums fake_quantise fp8 kernels quantise_portable record statistics worker_pool)
set(bench_sources drain_benchmark)

# Sets `result` to the sources of the layers that follow, below the folder src.
function(dftrace_sources result)
  foreach(layer ${ARGN})
    foreach(source ${${layer}_sources})
      list(APPEND paths ${PROJECT_SOURCE_DIR}/src/${layer}/${source}.cpp)
    endforeach()
  endforeach()
  set(${result} ${paths} PARENT_SCOPE)
endfunction()
