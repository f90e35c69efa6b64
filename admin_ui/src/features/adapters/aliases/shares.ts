import type { Alias, AliasTarget, Guard } from "@/api/types";

export const MAX_TARGETS = 5;
export const PRESETS = [1, 5, 10, 25, 50] as const;

/** What an alias says, whichever revision it is of. */
export type Pointing = Pick<Alias, "targets" | "sticky" | "guard">;

/** The target with the largest share; of equals the older version. */
export function mainTarget(targets: readonly AliasTarget[]): AliasTarget | undefined {
  return targets.toSorted((a, b) => b.weight - a.weight || a.version - b.version)[0];
}

/** The target on trial: the one with the smallest share, where there is more than one; of equals the newer version. */
export function canaryTarget(targets: readonly AliasTarget[]): AliasTarget | undefined {
  if (targets.length < 2) return undefined;
  return targets.toSorted((a, b) => a.weight - b.weight || b.version - a.version)[0];
}

export function wholly(version: number): AliasTarget[] {
  return [{ version, weight: 100 }];
}

/** "version 2", "version 2 (90 %) and version 3 (10 %)". */
export function targetsInWords(targets: readonly AliasTarget[]): string {
  const [only] = targets;
  if (only === undefined) return "nothing";
  if (targets.length === 1) return `version ${only.version}`;
  const words = targets.map(({ version, weight }) => `version ${version} (${weight} %)`);
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1) ?? ""}`;
}

export function guardInWords(guard: Guard | null): string {
  if (guard === null) return "no guard";
  const { max_error_rate: rate, max_ttft_ratio: ratio } = guard;
  const limits = [
    rate == null ? null : `errors above ${share(rate)}`,
    ratio == null ? null : `first token above ${ratio} × the other's`,
  ].filter((limit) => limit !== null);
  return `goes back on ${limits.join(" or ")}, after ${guard.min_requests} requests`;
}

export function stickyInWords(sticky: Alias["sticky"]): string {
  return sticky === "user" ? "a user stays on one version" : "every request is drawn anew";
}

/** What somebody else changed, as sentences. */
export function differences(before: Pointing | null, now: Pointing | null): string[] {
  if (now === null) return before === null ? [] : ["It was removed."];
  const to = targetsInWords(now.targets);
  if (before === null) return [`It was created and points at ${to}.`];
  const found: string[] = [];
  const from = targetsInWords(before.targets);
  if (from !== to) found.push(`It pointed at ${from}; now it points at ${to}.`);
  if (before.sticky !== now.sticky) found.push(`Now ${stickyInWords(now.sticky)}.`);
  const [had, has] = [guardInWords(before.guard), guardInWords(now.guard)];
  if (had !== has) found.push(`Its guard was: ${had}. Now: ${has}.`);
  return found.length > 0 ? found : ["It was changed and says the same as before."];
}

function share(rate: number): string {
  return `${Number((rate * 100).toFixed(2))} %`;
}
