/** A line between the browser and the server that can be cut like a cable: connections break, new ones are refused. */
import { connect, createServer } from "node:net";

export class Line {
  #server;
  #ends = new Set();
  #isCut = false;

  /** A line to the server at `url`, open until it is closed. */
  static async to(url) {
    const { hostname, port } = new URL(url);
    const line = new Line();
    line.#server = createServer((near) => line.#join(near, connect(Number(port), hostname)));
    await new Promise((resolve) => line.#server.listen(0, "127.0.0.1", resolve));
    return line;
  }

  get url() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  #join(near, far) {
    for (const [end, other] of [[near, far], [far, near]]) {
      this.#ends.add(end);
      end.on("error", () => other.destroy());
      end.on("close", () => {
        this.#ends.delete(end);
        other.destroy();
      });
    }
    if (this.#isCut) near.destroy();
    near.pipe(far).pipe(near);
  }

  cut() {
    this.#isCut = true;
    for (const end of this.#ends) end.destroy();
  }

  mend() {
    this.#isCut = false;
  }

  close() {
    this.cut();
    this.#server.close();
  }
}
