/** One file to the server by tus: from its start, or from where an earlier upload of the same bytes broke off. */
import { DetailedError, Upload } from "tus-js-client";

import { http } from "@/api/client";
import { csrf } from "@/api/csrf";
import { ApiError, apiErrorOf, unreachable } from "@/api/errors";
import type { OpenUpload } from "@/api/types";

const TUS_VERSION = "1.0.0";
/** What a broken connection may cost at most, where a gateway between us and the server keeps whole requests only. */
const SLICE_BYTES = 16 * 1024 * 1024;

export interface Parcel {
  slug: string;
  adapter: string;
  file: File;
  sha256: string;
}

/** What the server holds of an adapter's files that belong to no version yet. */
export async function openUploads(slug: string, adapter: string): Promise<OpenUpload[]> {
  const { data } = await http.GET("/admin/v1/tenants/{slug}/uploads", { params: { path: { slug }, query: { adapter } } });
  return data?.data ?? [];
}

/** The upload that a parcel can go on with: the same bytes under the same name; of several, the one that got farthest. */
export function matching(uploads: readonly OpenUpload[], { adapter, file, sha256 }: Parcel): OpenUpload | undefined {
  return uploads
    .filter((upload) => upload.adapter === adapter && upload.filename === file.name)
    .filter((upload) => upload.sha256 === sha256 && upload.length === file.size)
    .toSorted((a, b) => b.received - a.received)[0];
}

export async function forgetUpload(slug: string, id: string): Promise<void> {
  const params = { path: { slug, upload_id: id } };
  await http.DELETE("/admin/v1/tenants/{slug}/uploads/{upload_id}", { params, headers: { "Tus-Resumable": TUS_VERSION } });
}

/**
 * Resolves to the upload's id when the server has the whole file. An aborted signal stops it where it is, and what
 * arrived stays on the server.
 */
export function sendFile(
  parcel: Parcel,
  known: OpenUpload | undefined,
  onProgress: (bytes: number) => void,
  signal: AbortSignal,
): Promise<string> {
  const { slug, adapter, file, sha256 } = parcel;
  if (known !== undefined && known.received === known.length) return Promise.resolve(known.id);
  const endpoint = `/admin/v1/tenants/${encodeURIComponent(slug)}/uploads`;
  return new Promise((resolve, reject) => {
    const upload = new Upload(file, {
      endpoint: location.origin + endpoint,
      uploadUrl: known === undefined ? null : `${location.origin}${endpoint}/${encodeURIComponent(known.id)}`,
      metadata: { adapter, filename: file.name, sha256 },
      chunkSize: SLICE_BYTES,
      retryDelays: [0, 1000, 3000, 5000],
      // The server knows what it has; nothing about uploads is kept in the browser.
      storeFingerprintForResuming: false,
      onBeforeRequest: (request) => {
        const token = csrf.get();
        if (token !== null) request.setHeader("X-CSRF-Token", token);
      },
      onProgress,
      onSuccess: () => {
        resolve(idOf(upload.url));
      },
      onError: (error) => {
        reject(refusalOf(error));
      },
    });
    const stop = () => {
      void upload.abort();
      reject(new DOMException("The upload was stopped.", "AbortError"));
    };
    if (signal.aborted) stop();
    else {
      signal.addEventListener("abort", stop, { once: true });
      upload.start();
    }
  });
}

function idOf(url: string | null): string {
  return decodeURIComponent(url?.split("/").at(-1) ?? "");
}

/** The API's own sentence out of the library's error. */
function refusalOf(error: Error): ApiError {
  if (!(error instanceof DetailedError)) return new ApiError(error.message, 0, "unexpected", null);
  const answer = error.originalResponse;
  if (answer === null || answer.getStatus() === 0) return unreachable();
  return apiErrorOf(answer.getStatus(), parsed(answer.getBody()), answer.getHeader("x-request-id") ?? null);
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body) as unknown;
  } catch {
    return null;
  }
}
