import { api } from "@/api/client";
import type { Finding } from "@/api/types";

const POLL_MS = 5000;

/** What the doctor finds in the engine's figures of late. */
export function useFindings() {
  return api.useQuery("get", "/admin/v1/findings", {}, { refetchInterval: POLL_MS });
}

/** The worst first; alike ones as the doctor has them. */
export function inOrder(findings: readonly Finding[]): Finding[] {
  const rank = ({ severity }: Finding) => (severity === "critical" ? 0 : 1);
  return findings.toSorted((a, b) => rank(a) - rank(b));
}
