import { api } from "@/api/client";

const POLL_MS = 5000; // as often as the figures change

/** What the engine was started with, and how it has performed in the last minutes. */
export function useEngine() {
  return api.useQuery("get", "/admin/v1/engine", {}, { refetchInterval: POLL_MS });
}
