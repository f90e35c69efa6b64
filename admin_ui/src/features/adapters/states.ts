import type { Version } from "@/api/types";

interface Look {
  color: string;
  label: string;
  meaning: string;
}

export const LOOKS: Record<Version["state"], Look> = {
  validating: { color: "blue", label: "validating", meaning: "Its files are being checked and compared with PEFT." },
  ready: { color: "green", label: "ready", meaning: "It has its certificate and can be served." },
  rejected: { color: "red", label: "rejected", meaning: "It can't be served exactly, so it isn't served at all." },
  failed_internal: { color: "orange", label: "failed", meaning: "The check broke off for a reason of ours. Try again." },
  retired: { color: "gray", label: "retired", meaning: "Out of service. It can be restored until its files are removed." },
  quarantined: { color: "red", label: "quarantined", meaning: "Stopped. Only an administrator brings it back." },
  purged: { color: "gray", label: "deleted", meaning: "Its files are removed; the number isn't given again." },
};

/** Retired with no time left: the files go as soon as nothing runs on them. */
export function isBeingDeleted(version: Version, nowSeconds: number): boolean {
  return version.state !== "purged" && version.purge_after !== null && version.purge_after <= nowSeconds;
}

/** Newest first; what is deleted is only a number. */
export function shownVersions(versions: readonly Version[]): { kept: Version[]; deleted: Version[] } {
  const sorted = versions.toSorted((a, b) => b.number - a.number);
  return {
    kept: sorted.filter(({ state }) => state !== "purged"),
    deleted: sorted.filter(({ state }) => state === "purged"),
  };
}
