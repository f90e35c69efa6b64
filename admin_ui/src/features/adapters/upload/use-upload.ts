import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useReducer, useRef } from "react";

import { http } from "@/api/client";
import { asApiError } from "@/api/errors";
import { setSession } from "@/api/query-client";
import type { Version } from "@/api/types";

import { useRefreshAdapter } from "../use-adapters";
import { sha256Of } from "./hashing";
import { isRunning, NOTHING, step, type Event, type FileProgress } from "./progress";
import { matching, openUploads, sendFile } from "./transfer";

const ASK_MS = 3000;

export interface Wish {
  slug: string;
  adapter: string;
  /** Moved to the version when it is ready; null = none. */
  alias: string | null;
  description: string;
}

type Tell = (event: Event) => void;

/**
 * Reads the files, sends what the server doesn't have, seals. Pausing breaks off; going on asks the server again what it
 * has, so it makes no difference whether a pause, a cut line or a reload lay between.
 */
export function useUpload(wish: Wish) {
  const [progress, tell] = useReducer(step, NOTHING);
  const running = useRef<AbortController | null>(null);
  const client = useQueryClient();
  const refresh = useRefreshAdapter(wish.slug, wish.adapter);
  const { files, phase, failure } = progress;

  function start(): void {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    const tellWhileWanted: Tell = (event) => {
      if (!controller.signal.aborted) tell(event);
    };
    tell({ kind: "started" });
    carry(wish, files, tellWhileWanted, controller.signal)
      .then(refresh)
      .catch((error: unknown) => {
        if (controller.signal.aborted) return;
        const refusal = asApiError(error);
        if (refusal.status === 401) setSession(client, null);
        tell({ kind: "failed", failure: refusal });
      });
  }

  function pause(): void {
    running.current?.abort();
    tell({ kind: "paused" });
  }

  function choose(chosen: readonly File[]): void {
    running.current?.abort();
    tell({ kind: "chosen", files: chosen });
  }

  // Whoever leaves the page breaks off; the server keeps what it has.
  useEffect(() => () => running.current?.abort(), []);

  useWhenLineIsBack(phase === "interrupted" && failure?.status === 0, wish, start);

  return { progress, start, pause, choose, isRunning: isRunning(phase) };
}

/** Asks the server now and then whether it is there again, and at once when the browser says that it is online. */
function useWhenLineIsBack(isWaiting: boolean, { slug, adapter }: Wish, goOn: () => void): void {
  const latest = useRef(goOn);
  useEffect(() => {
    latest.current = goOn;
  });
  useEffect(() => {
    if (!isWaiting) return undefined;
    let isOver = false;
    const ask = () => {
      openUploads(slug, adapter).then(
        () => {
          if (!isOver) latest.current();
        },
        () => undefined,
      );
    };
    const timer = setInterval(ask, ASK_MS);
    window.addEventListener("online", ask);
    return () => {
      isOver = true;
      clearInterval(timer);
      window.removeEventListener("online", ask);
    };
  }, [isWaiting, slug, adapter]);
}

async function carry(wish: Wish, files: readonly FileProgress[], tell: Tell, signal: AbortSignal): Promise<void> {
  const digests = await readAll(files, tell, signal);
  const ids = await sendAll(wish, files, digests, tell, signal);
  signal.throwIfAborted();
  tell({ kind: "sealing" });
  tell({ kind: "sealed", version: await seal(wish, ids) });
}

async function readAll(files: readonly FileProgress[], tell: Tell, signal: AbortSignal): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  for (const { file, sha256 } of files) {
    const onProgress = (bytes: number) => {
      tell({ kind: "read", name: file.name, bytes, at: Date.now() });
    };
    const digest = sha256 ?? (await sha256Of(file, onProgress, signal));
    digests.set(file.name, digest);
    tell({ kind: "hashed", name: file.name, sha256: digest });
  }
  return digests;
}

async function sendAll(
  { slug, adapter }: Wish,
  files: readonly FileProgress[],
  digests: ReadonlyMap<string, string>,
  tell: Tell,
  signal: AbortSignal,
): Promise<Record<string, string>> {
  const known = await openUploads(slug, adapter);
  const ids: Record<string, string> = {};
  for (const { file, uploadId } of files) {
    signal.throwIfAborted();
    const parcel = { slug, adapter, file, sha256: digests.get(file.name) ?? "" };
    const before = matching(known, parcel);
    if (uploadId === null) tell({ kind: "sending", name: file.name, from: before?.received ?? 0 });
    const onProgress = (bytes: number) => {
      tell({ kind: "sent", name: file.name, bytes, at: Date.now() });
    };
    const id = uploadId ?? (await sendFile(parcel, before, onProgress, signal));
    ids[file.name] = id;
    tell({ kind: "complete", name: file.name, uploadId: id });
  }
  return ids;
}

async function seal({ slug, adapter, alias, description }: Wish, files: Record<string, string>): Promise<Version> {
  const body = { files, ...(alias === null ? {} : { alias }), ...(description === "" ? {} : { description }) };
  const params = { path: { slug, name: adapter } };
  const { data } = await http.POST("/admin/v1/tenants/{slug}/adapters/{name}/versions", { params, body });
  if (data === undefined) throw new Error("The version came back empty.");
  return data;
}
