// How large JavaScript's and WebAssembly's heaps are, of a page and its workers together, asked over the debugging
// protocol while they work.

export class Heaps {
  static async watch(context, page) {
    const heaps = new Heaps();
    const session = await context.newCDPSession(page);
    const workers = new Set();
    session.on('Target.attachedToTarget', ({sessionId, targetInfo}) => targetInfo.type === 'worker' && workers.add(sessionId));
    session.on('Target.detachedFromTarget', ({sessionId}) => workers.delete(sessionId));
    const answers = new Map();
    session.on('Target.receivedMessageFromTarget', ({message}) => {
      const {id, result} = JSON.parse(message);
      answers.get(id)?.(result);
      answers.delete(id);
    });
    await session.send('Target.setAutoAttach', {autoAttach: true, waitForDebuggerOnStart: false, flatten: false});
    Object.assign(heaps, {session, workers, answers, next: 1, largest: 0, samples: 0});
    return heaps;
  }

  // null from a worker that ends, or does not answer in time.
  ofWorker(sessionId) {
    return new Promise((resolve) => {
      const id = this.next++;
      const patience = setTimeout(() => resolve(null), 5000);
      this.answers.set(id, (result) => {
        clearTimeout(patience);
        resolve(result);
      });
      this.session.send('Target.sendMessageToTarget', {sessionId, message: JSON.stringify({id, method: 'Runtime.getHeapUsage'})}).catch(() => resolve(null));
    });
  }

  /** Looks once; `largest` is the most bytes that a look has found, `samples` how many looks met a worker. */
  async look() {
    // backingStorageSize holds array buffers, the memory of WebAssembly among them.
    const bytes = (heap) => heap.usedSize + (heap.backingStorageSize ?? 0);
    let sum = bytes(await this.session.send('Runtime.getHeapUsage'));
    let met = false;
    for (const worker of [...this.workers]) {
      const heap = await this.ofWorker(worker);
      if (!heap) continue;
      met = true;
      sum += bytes(heap);
    }
    if (met) ++this.samples;
    this.largest = Math.max(this.largest, sum);
  }

  /** Looks again and again until `work` is done, and answers what it does. */
  async during(work, everyMs = 50) {
    let busy = true;
    const done = work.finally(() => busy = false);
    done.catch(() => {});
    while (busy) {
      await this.look();
      await Promise.race([done.catch(() => {}), new Promise((resolve) => setTimeout(resolve, everyMs))]);
    }
    return done;
  }
}
