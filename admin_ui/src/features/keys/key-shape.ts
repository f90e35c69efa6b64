import type { ApiKey } from "@/api/types";

/** What of a key may be shown: enough to find it in a program's settings, nothing that works. */
export function maskedKey({ public_id, hint }: ApiKey): string {
  return `lk_${public_id}_…${hint}`;
}
