import { Stack } from "@mantine/core";

import { Page } from "@/components/layout/page";

import { ChoresPanel } from "./chores-panel";
import { JobsPanel } from "./jobs-panel";

/** What is done outside requests: jobs that something asked for, and chores that come round by themselves. */
export function JobsPage() {
  return (
    <Page title="Jobs" testId="jobs" subtitle="What is done outside requests.">
      <Stack gap="md">
        <JobsPanel />
        <ChoresPanel />
      </Stack>
    </Page>
  );
}
