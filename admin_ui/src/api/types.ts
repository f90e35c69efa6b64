/** Short names for what the routes return, taken from the paths so that they hold whatever the schemas are called. */
import type { paths } from "./schema.gen";

type Json<Response> = Response extends { content: { "application/json": infer Body } } ? Body : never;

export type Overview = Json<paths["/admin/v1/overview"]["get"]["responses"][200]>;
export type Engine = Overview["engine"];
export type Ledger = NonNullable<Engine["kv"]>;
export type ResidentAdapter = Engine["adapters"][number];
export type TenantQueue = Engine["queues"][number];
export type PrefixCache = NonNullable<Engine["prefix"]>;
export type ResidencyCounts = NonNullable<Engine["residency"]>;
export type AdapterTraffic = NonNullable<Engine["adapter_traffic"]>;
export type Preemptions = NonNullable<Engine["preemptions"]>;
export type Refusals = NonNullable<Engine["refusals"]>;

export type Tenant = Json<paths["/admin/v1/tenants"]["get"]["responses"][200]>["data"][number];
export type TenantDetail = Json<paths["/admin/v1/tenants/{slug}"]["get"]["responses"][200]>;
export type Plan = Json<paths["/admin/v1/plans"]["get"]["responses"][200]>["data"][number];
export type Limits = Json<paths["/admin/v1/tenants/{slug}/limits"]["get"]["responses"][200]>["limits"];
export type EffectiveLimit = Limits[string];
export type LimitFigures = EffectiveLimit["plan"];
export type ApiKey = Json<paths["/admin/v1/tenants/{slug}/keys"]["get"]["responses"][200]>["data"][number];
export type Scope = ApiKey["scopes"][number];
type KeyPath = paths["/admin/v1/tenants/{slug}/keys/{id}"];
export type KeyPatch = KeyPath["patch"]["requestBody"]["content"]["application/json"];
export type UsageRow = Json<paths["/admin/v1/usage"]["get"]["responses"][200]>["data"][number];
export type AuditEvent = Json<paths["/admin/v1/audit_events"]["get"]["responses"][200]>["data"][number];
export type Job = Json<paths["/admin/v1/jobs"]["get"]["responses"][200]>["data"][number];
export type Chore = Json<paths["/admin/v1/chores"]["get"]["responses"][200]>["data"][number];
export type Adapter = Json<paths["/admin/v1/tenants/{slug}/adapters"]["get"]["responses"][200]>["data"][number];
export type Version = Adapter["versions"][number];
export type Certificate = NonNullable<Version["certificate"]>;
export type Alias = Adapter["aliases"][number];
export type AliasTarget = Alias["targets"][number];
export type Guard = NonNullable<Alias["guard"]>;
type AliasPath = paths["/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}"];
export type AliasSet = AliasPath["put"]["requestBody"]["content"]["application/json"];
type HistoryPath = paths["/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}/history"];
export type AliasRevision = Json<HistoryPath["get"]["responses"][200]>["data"][number];
type FilesPath = paths["/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}/files"];
export type VersionFile = Json<FilesPath["get"]["responses"][200]>["data"][number];
export type OpenUpload = Json<paths["/admin/v1/tenants/{slug}/uploads"]["get"]["responses"][200]>["data"][number];

export type Session = Json<paths["/auth/session"]["get"]["responses"][200]>;

export type EngineReport = Json<paths["/admin/v1/engine"]["get"]["responses"][200]>;
export type EngineDesign = NonNullable<EngineReport["design"]>;
export type Knob = EngineDesign["knobs"][number];
export type MemoryRow = EngineDesign["memory"][number];
export type Performance = NonNullable<EngineReport["performance"]>;
export type Phase = Performance["phases"][number];
export type Latency = Performance["latency"][number];
export type Moment = Performance["timeline"][number];
export type Findings = Json<paths["/admin/v1/findings"]["get"]["responses"][200]>;
export type Finding = Findings["findings"][number];
type Capacity = paths["/admin/v1/plan"]["post"];
export type Workload = Capacity["requestBody"]["content"]["application/json"];
/** The planner's answer; a `Plan` is what a tenant is on. */
export type CapacityPlan = Json<Capacity["responses"][200]>;
export type Estimated = NonNullable<CapacityPlan["estimate"]>["ttft_s"];
