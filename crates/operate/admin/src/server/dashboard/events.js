// Stream of documents, one a second while the page is open. Reconnects whenever the stream ends.
const SILENCE_MS = 4000, AGAIN_MS = 1000;

// Calls `show` with each document, and `lost` with the reason when the stream ends.
export async function listen(show, lost) {
  for (;;) {
    const ended = new AbortController();
    let timer;
    const alive = () => { clearTimeout(timer); timer = setTimeout(() => ended.abort(), SILENCE_MS); };
    try {
      alive();
      const answer = await fetch("/events", { signal: ended.signal, headers: { Accept: "text/event-stream" } });
      if (!answer.ok) throw new Error((await answer.json()).error.message);
      const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { done, value } = await pieces.read();
        if (done) break;
        alive();
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) if (event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
      }
      lost("");
    } catch (error) {
      lost(ended.signal.aborted || error instanceof TypeError ? "no answer" : error.message);
    } finally {
      clearTimeout(timer);
      ended.abort();
    }
    await new Promise(done => setTimeout(done, AGAIN_MS));
  }
}

// Returns the nodes' histories of the last minutes.
export async function remembered() {
  const answer = await fetch("/history/all");
  return answer.ok ? answer.json() : [];
}
