/** Where an upload stands, as one value that only `step` changes. */
import type { ApiError } from "@/api/errors";
import type { Version } from "@/api/types";

import { advance, EMPTY_METER, type Meter } from "./meter";

export type Phase = "choosing" | "reading" | "sending" | "paused" | "interrupted" | "sealing" | "sealed";

export interface FileProgress {
  file: File;
  read: number;
  sha256: string | null;
  sent: number;
  /** What the server had already when this page began to send the file. */
  resumedAt: number;
  /** The complete upload's id. */
  uploadId: string | null;
}

export interface UploadProgress {
  phase: Phase;
  files: readonly FileProgress[];
  meter: Meter;
  failure: ApiError | null;
  version: Version | null;
}

export type Event =
  | { kind: "chosen"; files: readonly File[] }
  | { kind: "started" }
  | { kind: "read"; name: string; bytes: number; at: number }
  | { kind: "hashed"; name: string; sha256: string }
  | { kind: "sending"; name: string; from: number }
  | { kind: "sent"; name: string; bytes: number; at: number }
  | { kind: "complete"; name: string; uploadId: string }
  | { kind: "sealing" }
  | { kind: "sealed"; version: Version }
  | { kind: "paused" }
  | { kind: "failed"; failure: ApiError };

export const NOTHING: UploadProgress = { phase: "choosing", files: [], meter: EMPTY_METER, failure: null, version: null };

export function step(progress: UploadProgress, event: Event): UploadProgress {
  switch (event.kind) {
    case "chosen":
      return { ...NOTHING, files: event.files.map(fresh) };
    case "started":
      return { ...progress, phase: "reading", meter: EMPTY_METER, failure: null };
    case "read":
      return metered(withFile(progress, event.name, { read: event.bytes }), event.at, ({ read }) => read);
    case "hashed":
      return withFile(progress, event.name, { sha256: event.sha256 });
    case "sending": {
      const begins = { ...progress, phase: "sending" as const, meter: EMPTY_METER };
      return withFile(begins, event.name, { sent: event.from, resumedAt: event.from });
    }
    case "sent":
      return metered(withFile(progress, event.name, { sent: event.bytes }), event.at, ({ sent }) => sent);
    case "complete": {
      const size = progress.files.find(({ file }) => file.name === event.name)?.file.size ?? 0;
      return withFile(progress, event.name, { sent: size, uploadId: event.uploadId });
    }
    case "sealing":
      return { ...progress, phase: "sealing" };
    case "sealed":
      return { ...progress, phase: "sealed", version: event.version };
    case "paused":
      return { ...progress, phase: "paused", meter: EMPTY_METER };
    case "failed":
      return { ...forgetting(progress, event.failure), phase: "interrupted", meter: EMPTY_METER, failure: event.failure };
  }
}

function fresh(file: File): FileProgress {
  return { file, read: 0, sha256: null, sent: 0, resumedAt: 0, uploadId: null };
}

function withFile(progress: UploadProgress, name: string, change: Partial<FileProgress>): UploadProgress {
  return { ...progress, files: progress.files.map((each) => (each.file.name === name ? { ...each, ...change } : each)) };
}

function metered(progress: UploadProgress, at: number, count: (file: FileProgress) => number): UploadProgress {
  return { ...progress, meter: advance(progress.meter, at, progress.files.reduce((sum, file) => sum + count(file), 0)) };
}

/** Uploads that the server doesn't take, because they expired or are somebody's by now, are made again. */
function forgetting(progress: UploadProgress, failure: ApiError): UploadProgress {
  if (progress.phase !== "sealing" || (failure.status !== 404 && failure.status !== 409)) return progress;
  return { ...progress, files: progress.files.map((file) => ({ ...file, sent: 0, resumedAt: 0, uploadId: null })) };
}

/** Bytes done and to do in the phase that is shown. */
export function amounts({ phase, files }: UploadProgress): { done: number; whole: number } {
  const sum = (count: (file: FileProgress) => number) => files.reduce((all, file) => all + count(file), 0);
  return { done: sum(({ read, sent }) => (phase === "reading" ? read : sent)), whole: sum(({ file }) => file.size) };
}

export function isRunning(phase: Phase): boolean {
  return phase === "reading" || phase === "sending" || phase === "sealing";
}
