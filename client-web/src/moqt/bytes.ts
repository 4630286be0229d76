import { violation } from "./codes.ts";

const text = new TextEncoder();
const lenient = new TextDecoder();

/** Thrown when the buffer ends inside a field. On a stream, wait for more bytes. */
export class ShortError extends Error {
  constructor() {
    super("ends inside a field");
    this.name = "ShortError";
  }
}

/** Length in bytes of the variable-length integer that starts with byte `first` (§1.4.1). */
export function varintSize(first: number): number {
  return Math.clz32(~(first << 24)) + 1;
}

/** Reads fields from a buffer. Throws ShortError if the buffer ends inside one. */
export class Reader {
  pos = 0;

  constructor(readonly buf: Uint8Array) {}

  get left(): number {
    return this.buf.length - this.pos;
  }

  u8(): number {
    const b = this.buf[this.pos];
    if (b === undefined) throw new ShortError();
    this.pos++;
    return b;
  }

  /** Reads a variable-length integer of up to 64 bits (§1.4.1). */
  varint(): bigint {
    const first = this.buf[this.pos];
    if (first === undefined) throw new ShortError();
    const size = varintSize(first);
    if (this.left < size) throw new ShortError();
    let hi = 0;
    let lo = size < 8 ? first & (0x7f >> (size - 1)) : 0;
    for (let i = 1; i < size; i++) {
      hi = ((hi << 8) | (lo >>> 24)) >>> 0;
      lo = ((lo << 8) | this.buf[this.pos + i]!) >>> 0;
    }
    this.pos += size;
    return hi === 0 ? BigInt(lo) : (BigInt(hi) << 32n) | BigInt(lo);
  }

  /** Reads a variable-length integer of at most `limit`, which must be a safe integer. */
  int(limit: number, what: string): number {
    const v = this.varint();
    if (v > BigInt(limit)) throw violation(`${what} ${v} exceeds ${limit}`);
    return Number(v);
  }

  /** Returns a view of the next n bytes. */
  take(n: number): Uint8Array {
    if (n > this.left) throw new ShortError();
    this.pos += n;
    return this.buf.subarray(this.pos - n, this.pos);
  }

  /** Reads a length of at most `limit` and returns a view of that many bytes. */
  bytes(limit: number, what: string): Uint8Array {
    return this.take(this.int(limit, `length of the ${what}`));
  }

  /** Reads a length and that many bytes of UTF-8; invalid sequences become U+FFFD. */
  string(limit: number, what: string): string {
    return lenient.decode(this.bytes(limit, what));
  }
}

/** Writes fields to a growing buffer. */
export class Writer {
  #buf = new Uint8Array(64);
  #len = 0;

  get length(): number {
    return this.#len;
  }

  #grow(n: number): void {
    if (this.#len + n <= this.#buf.length) return;
    const bigger = new Uint8Array(Math.max(2 * this.#buf.length, this.#len + n));
    bigger.set(this.#buf.subarray(0, this.#len));
    this.#buf = bigger;
  }

  u8(v: number): void {
    this.#grow(1);
    this.#buf[this.#len++] = v;
  }

  varint(v: number | bigint): void {
    let x = BigInt(v);
    let size = 1;
    while (size < 9 && x >= 1n << BigInt(size === 8 ? 56 : 7 * size)) size++;
    this.#grow(9);
    if (size === 9) this.#buf[this.#len] = 0xff;
    const from = this.#len + (size === 9 ? 1 : 0);
    const n = size === 9 ? 8 : size;
    for (let i = from + n - 1; i >= from; i--) {
      this.#buf[i] = Number(x & 0xffn);
      x >>= 8n;
    }
    if (size < 9) this.#buf[from]! |= (0xff << (9 - size)) & 0xff;
    this.#len += size;
  }

  raw(b: Uint8Array): void {
    this.#grow(b.length);
    this.#buf.set(b, this.#len);
    this.#len += b.length;
  }

  bytes(b: Uint8Array): void {
    this.varint(b.length);
    this.raw(b);
  }

  string(s: string): void {
    this.bytes(text.encode(s));
  }

  /** Returns a copy of the bytes written so far. */
  finish(): Uint8Array<ArrayBuffer> {
    return this.#buf.slice(0, this.#len);
  }
}
