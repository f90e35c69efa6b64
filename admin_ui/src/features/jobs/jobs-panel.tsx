import { Badge, Button, Center, SegmentedControl, Stack, Table, Text, VisuallyHidden } from "@mantine/core";
import { useState } from "react";

import type { Job } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { toastDone } from "@/components/feedback/toasts";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { TenantLink } from "@/components/tenant-link";
import { dateTime } from "@/format/time";

import { useJobs, useRetry, type JobState } from "./use-jobs";

const STATES: Record<JobState, { label: string; color: string }> = {
  queued: { label: "waiting", color: "blue" },
  leased: { label: "running", color: "yellow" },
  done: { label: "done", color: "green" },
  failed: { label: "failed", color: "red" },
};
const NAMES = Object.keys(STATES) as JobState[];

export function JobsPanel() {
  const [state, setState] = useState<JobState | null>(null);
  const query = useJobs(state);
  const choice = (
    <SegmentedControl
      size="xs"
      aria-label="State of jobs"
      data={[{ value: "all", label: "All" }, ...NAMES.map((value) => ({ value, label: STATES[value].label }))]}
      value={state ?? "all"}
      onChange={(value) => {
        setState(NAMES.find((each) => each === value) ?? null);
      }}
    />
  );
  return (
    <Panel title="Jobs" note={choice} flush testId="job-list">
      <QueryState query={query}>
        {({ pages }) => {
          const jobs = pages.flatMap(({ data }) => data);
          return (
            <Stack gap={0}>
              {jobs.length === 0 ? <NoJobs state={state} /> : <JobTable jobs={jobs} />}
              {query.hasNextPage && (
                <Center py="sm">
                  <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                    Older jobs
                  </Button>
                </Center>
              )}
            </Stack>
          );
        }}
      </QueryState>
    </Panel>
  );
}

function NoJobs({ state }: { state: JobState | null }) {
  return (
    <Empty title={state === null ? "No jobs yet" : `No job is ${STATES[state].label}`}>
      <Text fz="sm" c="dimmed">
        Checking, retiring and removing a version are jobs.
      </Text>
    </Empty>
  );
}

function JobTable({ jobs }: { jobs: readonly Job[] }) {
  return (
    <TableScroll label="Table of jobs">
      <Table highlightOnHover fz="sm" miw={880} aria-label="Jobs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={110}>State</Table.Th>
            <Table.Th>Job</Table.Th>
            <Table.Th>Tenant</Table.Th>
            <Table.Th ta="right">Attempt</Table.Th>
            <Table.Th>Made</Table.Th>
            <Table.Th>Ended</Table.Th>
            <Table.Th w={100}>
              <VisuallyHidden>Actions</VisuallyHidden>
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {jobs.map((job) => (
            <JobRow key={job.id} job={job} />
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}

function JobRow({ job }: { job: Job }) {
  const { label, color } = STATES[job.state];
  return (
    <Table.Tr data-testid={`job-${job.id}`} data-state={job.state}>
      <Table.Td>
        <Badge color={color}>{label}</Badge>
      </Table.Td>
      <Table.Td maw={360}>
        <Text fz="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
          {job.kind} {job.adapter}:{job.version}
        </Text>
        {job.last_error !== null && (
          <Text fz="xs" c="dimmed" lineClamp={2} title={job.last_error}>
            {job.last_error}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        <TenantLink slug={job.tenant} />
      </Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
        {job.attempt} of {job.max_attempts}
      </Table.Td>
      <Table.Td style={{ whiteSpace: "nowrap" }}>{dateTime(job.created_at)}</Table.Td>
      <Table.Td style={{ whiteSpace: "nowrap" }}>{job.finished_at === null ? "–" : dateTime(job.finished_at)}</Table.Td>
      <Table.Td ta="right">{job.state === "failed" && <Retry job={job} />}</Table.Td>
    </Table.Tr>
  );
}

function Retry({ job }: { job: Job }) {
  const retry = useRetry();
  return (
    <Button
      size="compact-sm"
      variant="default"
      loading={retry.isPending}
      aria-label={`Try ${job.kind} ${job.id} again`}
      onClick={() => {
        retry.mutate(
          { params: { path: { job_id: job.id } } },
          {
            onSuccess: () => {
              toastDone("The job is tried again.");
            },
          },
        );
      }}
    >
      Try again
    </Button>
  );
}
