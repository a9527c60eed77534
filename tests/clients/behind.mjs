// A look behind the gateway.

const ENGINES = process.env.ENGINE_URLS.split(",");

/** Requests running, and aborted so far, over all model servers. */
export async function engineCounters() {
  const sums = { running: 0, aborted: 0 };
  for (const url of ENGINES) {
    const page = await (await fetch(`${url}/admin/counters`)).json();
    for (const engine of page.engines) {
      sums.running += engine.running;
      sums.aborted += engine.aborted;
    }
  }
  return sums;
}

/** Waits for a condition; a second is what a cancelled request may take. */
export async function eventually(condition, patience = 1000) {
  const deadline = Date.now() + patience;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error("it did not happen in time");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
