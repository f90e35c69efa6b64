/** Routes that the schema does not have yet, by hand. */
interface Answer<Body> {
  headers: Record<string, unknown>;
  content: { "application/json": Body };
}

type In<Path> = [Path] extends [undefined] ? { path?: never } : { path: Path };

interface Call<Path, Query, Result> {
  parameters: In<Path> & { query?: Query; header?: never; cookie?: never };
  requestBody?: never;
  responses: { 200: Answer<Result> };
}

interface List<Item> {
  object: "list";
  data: Item[];
}

interface Page<Item> extends List<Item> {
  has_more: boolean;
  next: string | null;
}

type Nothing = undefined;
interface Slug {
  slug: string;
}

interface AuditEvent {
  id: string;
  at: number;
  tenant: string | null;
  actor_kind: string;
  actor: string;
  request_id: string | null;
  action: string;
  subject: string;
  details: Record<string, unknown>;
}

interface Paging {
  limit?: number;
  after?: string;
}

export interface DraftPaths {
  "/admin/v1/tenants/{slug}/audit_events": { get: Call<Slug, Paging, Page<AuditEvent>> };
  "/admin/v1/audit_events": { get: Call<Nothing, Paging & { tenant?: string }, Page<AuditEvent>> };
}
