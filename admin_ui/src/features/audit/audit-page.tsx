import { Page } from "@/components/layout/page";

import { Events } from "./events";

/** Events of all tenants and of the platform. */
export function AuditPage() {
  return (
    <Page title="Audit" testId="audit-page" subtitle="Every change, of all tenants and of the platform itself.">
      <Events whose={null} />
    </Page>
  );
}
