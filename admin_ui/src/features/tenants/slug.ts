const SLUG = /^[a-z0-9][a-z0-9-]{1,38}[a-z0-9]$/;

/** The server's rule in the page's words; the server has the last say. */
export function slugProblem(slug: string): string | null {
  if (SLUG.test(slug)) return null;
  if (slug.length < 3) return "At least 3 characters.";
  if (slug.length > 40) return "At most 40 characters.";
  if (/[^a-z0-9-]/.test(slug)) return "Lower-case letters, digits and hyphens only.";
  return "Starts and ends with a letter or a digit.";
}
