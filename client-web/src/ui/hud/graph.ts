/** Draws the recent history of two values as lines, newest on the right. */
export class Graph {
  readonly #fps = new Float32Array(120);
  readonly #delay = new Float32Array(120);
  #count = 0;

  constructor(private readonly canvas: HTMLCanvasElement) {}

  push(fps: number, delay: number): void {
    const i = this.#count++ % this.#fps.length;
    this.#fps[i] = fps;
    this.#delay[i] = delay;
    this.#draw();
  }

  #draw(): void {
    const ratio = devicePixelRatio;
    const w = Math.round(this.canvas.clientWidth * ratio);
    const h = Math.round(this.canvas.clientHeight * ratio);
    if (w === 0 || h === 0) return;
    if (this.canvas.width !== w || this.canvas.height !== h) Object.assign(this.canvas, { width: w, height: h });
    const g = this.canvas.getContext("2d");
    if (!g) return;
    g.clearRect(0, 0, w, h);
    const style = getComputedStyle(this.canvas);
    this.#line(g, this.#delay, w, h, style.getPropertyValue("--delay"), ratio);
    this.#line(g, this.#fps, w, h, style.getPropertyValue("--fps"), ratio);
  }

  #line(g: CanvasRenderingContext2D, values: Float32Array, w: number, h: number, color: string, ratio: number): void {
    const n = Math.min(this.#count, values.length);
    const most = Math.max(1, ...values) * 1.1;
    g.strokeStyle = color;
    g.lineWidth = 1.5 * ratio;
    g.beginPath();
    for (let k = 0; k < n; k++) {
      const v = values[(this.#count - n + k) % values.length]!;
      const x = w - ((n - 1 - k) / (values.length - 1)) * w;
      const y = h - (v / most) * (h - 2) - 1;
      if (k === 0) g.moveTo(x, y);
      else g.lineTo(x, y);
    }
    g.stroke();
  }
}
