import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";

/** Takes some milliseconds, so that the page stays awake between two pieces. */
const PIECE_BYTES = 2 * 1024 * 1024;

/**
 * The SHA-256 of a file in lower-case hex, piece by piece: the browser's own digest takes only whole buffers, and does
 * not exist at all on a page that came by plain http.
 */
export async function sha256Of(file: Blob, onProgress: (bytes: number) => void, signal: AbortSignal): Promise<string> {
  const hash = sha256.create();
  for (let start = 0; start < file.size; start += PIECE_BYTES) {
    const piece = await file.slice(start, start + PIECE_BYTES).arrayBuffer();
    signal.throwIfAborted();
    hash.update(new Uint8Array(piece));
    onProgress(Math.min(start + PIECE_BYTES, file.size));
  }
  return bytesToHex(hash.digest());
}
