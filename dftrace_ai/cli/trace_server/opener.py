"""The page that hands a trace over to the online UI where that may not fetch it itself."""

from __future__ import annotations

__all__ = ["OPENER_PAGE", "OPENER_POLICY"]

# Hands the trace over by message, for when the port that the UI may fetch from is taken. A
# click is needed: browsers open no window without one.
OPENER_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>dftrace view</title>
<style nonce="NONCE">button { font: 1.5rem sans-serif; margin: 4rem; }</style>
<button>Open the trace in Perfetto</button>
<script nonce="NONCE">
document.querySelector('button').onclick = async () => {
  const origin = 'https://ui.perfetto.dev';
  const ui = window.open(origin);
  const buffer = await (await fetch('TRACE')).arrayBuffer();
  const timer = setInterval(() => ui.postMessage('PING', origin), 100);
  window.addEventListener('message', (event) => {
    if (event.origin !== origin || event.data !== 'PONG') return;
    clearInterval(timer);
    ui.postMessage({perfetto: {buffer, title: 'TRACE', fileName: 'TRACE'}}, origin);
  });
};
</script>
"""

OPENER_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'nonce-NONCE'; style-src 'nonce-NONCE'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
