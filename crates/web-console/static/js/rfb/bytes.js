// Bytes of a stream, taken in the numbers that the protocol needs.

export class Bytes {
  constructor() {
    this.chunks = [];
    this.length = 0;
    this.waiting = undefined;
    this.ended = undefined;
  }

  push(buffer) {
    this.chunks.push(new Uint8Array(buffer));
    this.length += buffer.byteLength;
    this.wake();
  }

  end(reason) {
    this.ended = reason;
    this.wake();
  }

  wake() {
    const { waiting } = this;
    this.waiting = undefined;
    waiting?.();
  }

  /// Waits for exactly this many bytes. Fails when the stream ends before.
  async take(count) {
    while (this.length < count) {
      if (this.ended) throw new Error(this.ended);
      await new Promise((resolve) => (this.waiting = resolve));
    }
    const taken = new Uint8Array(count);
    let filled = 0;
    while (filled < count) {
      const [first] = this.chunks;
      const part = first.subarray(0, count - filled);
      taken.set(part, filled);
      filled += part.length;
      if (part.length === first.length) this.chunks.shift();
      else this.chunks[0] = first.subarray(part.length);
    }
    this.length -= count;
    return taken;
  }

  async view(count) {
    return new DataView((await this.take(count)).buffer);
  }

  async byte() {
    return (await this.take(1))[0];
  }
}
