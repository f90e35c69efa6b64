import { Page } from "@/components/layout/page";

import { UsageReport } from "./usage-report";

/** What all tenants used together. */
export function UsagePage() {
  return (
    <Page title="Usage" testId="usage-page" subtitle="Of all tenants.">
      <UsageReport whose={null} />
    </Page>
  );
}
