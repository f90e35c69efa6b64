import type { ApiKey } from "@/api/types";
import { dateTime } from "@/format/time";

/** What of a key may be shown: enough to find it in a program's settings, nothing that works. */
export function maskedKey({ public_id, hint }: Pick<ApiKey, "public_id" | "hint">): string {
  return `lk_${public_id}_…${hint}`;
}

export type StandingWord = "active" | "replaced" | "expired" | "revoked";

export interface Standing {
  word: StandingWord;
  color: string;
  /** What follows from it, or how it came about. */
  note: string | null;
  /** Whether a program that has it is let in. */
  works: boolean;
}

/** A key's place in its life at `now` (Unix seconds): a replaced key works until its overlap is over. */
export function standing(key: ApiKey, now: number): Standing {
  if (key.revoked_at !== null) {
    return { word: "revoked", color: "gray", note: key.revoke_reason ?? dateTime(key.revoked_at), works: false };
  }
  if (key.expires_at !== null && key.expires_at <= now) {
    const note = key.replaced_at === null ? null : "replaced by a rotation";
    return { word: "expired", color: "gray", note, works: false };
  }
  if (key.replaced_at !== null) {
    const note = key.expires_at === null ? null : `works until ${dateTime(key.expires_at)}`;
    return { word: "replaced", color: "yellow", note, works: true };
  }
  return { word: "active", color: "green", note: key.rotated_from === null ? null : "from a rotation", works: true };
}

/** The keys of one lineage, the newest first: limits and budgets hang on all of them together. */
export function lineage(key: ApiKey, keys: readonly ApiKey[]): ApiKey[] {
  return keys.filter(({ subject_id }) => subject_id === key.subject_id).toSorted((a, b) => b.created_at - a.created_at);
}
