import type { ApiKey, KeyPatch, Scope } from "@/api/types";

import { dayOf, endOfDay, expiryProblem } from "../expiry";
import { networksProblem, readNetworks } from "../networks";
import { DEFAULT_SCOPES } from "../scopes";

/** What is typed of a key, as the fields have it. */
export interface KeyDraft {
  name: string;
  scopes: Scope[];
  adapters: string[];
  networks: string;
  /** A day of the calendar; empty = never. */
  expires: string;
}

export function emptyDraft(): KeyDraft {
  return { name: "", scopes: [...DEFAULT_SCOPES], adapters: [], networks: "", expires: "" };
}

export function draftOf(key: ApiKey): KeyDraft {
  return {
    name: key.name,
    scopes: [...key.scopes],
    adapters: key.allowed_adapters ?? [],
    networks: (key.ip_allowlist ?? []).join("\n"),
    expires: dayOf(key.expires_at),
  };
}

export const draftProblems = {
  name: (name: string) => (name.trim() === "" ? "Give the key a name." : null),
  scopes: (scopes: Scope[]) => (scopes.length === 0 ? "A key without a scope can do nothing." : null),
  networks: networksProblem,
  expires: (day: string) => expiryProblem(day, Date.now() / 1000),
};

/** As a new key's request has it: what is not restricted is not said. */
export function newKeyOf({ name, scopes, adapters, networks, expires }: KeyDraft) {
  const addresses = readNetworks(networks);
  const end = endOfDay(expires);
  return {
    name: name.trim(),
    scopes,
    limits: {},
    ...(adapters.length > 0 && { allowed_adapters: adapters }),
    ...(addresses.length > 0 && { ip_allowlist: addresses }),
    ...(end !== null && { expires_at: end }),
  };
}

/** Only what differs from before; null takes a restriction away. */
export function changesOf(draft: KeyDraft, before: ApiKey): Partial<KeyPatch> {
  const was = draftOf(before);
  const addresses = readNetworks(draft.networks);
  const differs = (a: readonly string[], b: readonly string[]) => a.toSorted().join() !== b.toSorted().join();
  return {
    ...(draft.name.trim() !== was.name && { name: draft.name.trim() }),
    ...(differs(draft.scopes, was.scopes) && { scopes: draft.scopes }),
    ...(differs(draft.adapters, was.adapters) && { allowed_adapters: draft.adapters.length > 0 ? draft.adapters : null }),
    ...(differs(addresses, before.ip_allowlist ?? []) && { ip_allowlist: addresses.length > 0 ? addresses : null }),
    ...(draft.expires !== was.expires && { expires_at: endOfDay(draft.expires) }),
  };
}
