# The sources of the core, layer by layer: what stands in one may include what stands above it.

set(system_sources children clock directory held_file host_clocks host_name)
set(index_sources block_facts covered_time durations figures_told set_back)
set(text_sources hash json_check json_parts json_string names)
set(deflating_sources block_deflate gzip_members line_deflate packed_block)
set(spool_sources new_spool settings spool spool_marker tables)
set(writing_sources codec header_and_footer line_formatter made_trace open_lines part_index trace_blocks
                    trace_file trace_parts trace_writer tracks written_end)
set(reading_sources adoption live_spool live_text self_time spool_copy spool_view waiting_events)
set(reading/traces_sources argument_columns argument_pattern call_sets checking event_table general_line hopping labels line_figures line_walk members moments
                           narrow_column nested_tracks packed_columns plain_lines rewriting sample_columns scanner shown_clock span_sums span_tree thread_spans thread_time totals totals_told wall_and_categories)
set(reading/documents_sources compact_json documents odd_times)
set(reading/arrow_sources event_arrays label_texts)
set(stacks_sources code_names own_memory profile stack_reader)
set(recording_sources blob_store drain dump_signal flight_recorder live_file record_flow retention runtime sampler session
                      stacks_now thread thread_registry)
set(tensor_sources careful_sums collect cuda/gpu_statistics cuda/kernels_text fake_quantise fp8 histogram/histogram histogram/pair_counts kernels
                   record statistics worker_pool)
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
