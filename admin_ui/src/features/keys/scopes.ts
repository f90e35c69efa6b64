import type { Scope } from "@/api/types";

/** What a key may do, in words; the list is closed, and the server has the last say. */
export const SCOPES: readonly { value: Scope; label: string }[] = [
  { value: "inference", label: "Send requests to models" },
  { value: "models:read", label: "List models" },
  { value: "adapters:read", label: "See adapters and download their files" },
  { value: "adapters:write", label: "Upload, change and delete adapters" },
  { value: "deployments:write", label: "Set aliases, promote and roll back" },
  { value: "usage:read", label: "See usage and limits" },
  { value: "audit:read", label: "See audit events" },
  { value: "keys:read", label: "See keys" },
  { value: "keys:write", label: "Make, rotate and revoke keys, if the tenant's keys may" },
];

/** What a new key starts with: everything but keys themselves. */
export const DEFAULT_SCOPES: readonly Scope[] = SCOPES.map(({ value }) => value).filter((scope) => !scope.startsWith("keys:"));

/** In the order of the list above. */
export function inOrder(scopes: readonly Scope[]): Scope[] {
  const order = SCOPES.map(({ value }) => value);
  return scopes.toSorted((a, b) => order.indexOf(a) - order.indexOf(b));
}
