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

interface Change<Path, Body, Result> {
  parameters: In<Path> & { query?: never; header?: never; cookie?: never };
  requestBody: { content: { "application/json": Body } };
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

interface Figures {
  value: number;
  burst?: number | null;
}

interface EffectiveLimit extends Figures {
  origin: "plan" | "tenant" | "key";
  own: Figures | null;
  plan: Figures;
}

interface Limits {
  limits: Record<string, EffectiveLimit>;
}

interface LimitsPut {
  limits: Record<string, Figures | null>;
}

interface Plan {
  id: string;
  display_name: string;
  created_at: number;
  tenants: number;
  limits: Record<string, Figures>;
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
  "/admin/v1/tenants/{slug}/limits": { get: Call<Slug, never, Limits>; put: Change<Slug, LimitsPut, Limits> };
  "/admin/v1/plans": {
    get: Call<Nothing, never, List<Plan>>;
    post: Change<Nothing, { id: string; display_name?: string; limits?: Record<string, Figures> }, Plan>;
  };
  "/admin/v1/plans/{id}": {
    get: Call<{ id: string }, never, Plan>;
    put: Change<{ id: string }, { limits: Record<string, Figures> }, Plan>;
  };
  "/admin/v1/tenants/{slug}/audit_events": { get: Call<Slug, Paging, Page<AuditEvent>> };
  "/admin/v1/audit_events": { get: Call<Nothing, Paging & { tenant?: string }, Page<AuditEvent>> };
}
