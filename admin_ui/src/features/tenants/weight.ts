export const DEFAULT_WEIGHT = 1;
export const MAX_WEIGHT = 1000;

/** The server's rule in the page's words; an emptied field is no number. */
export function weightProblem(typed: number | string): string | null {
  const weight = Number(typed);
  if (typed === "" || !(weight > 0)) return "A number above 0; 1 is the usual weight.";
  return weight > MAX_WEIGHT ? `At most ${MAX_WEIGHT}.` : null;
}
