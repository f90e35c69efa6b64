import { Button, Group as Row, SegmentedControl, Select, Skeleton, Stack, Text } from "@mantine/core";
import { lazy, Suspense } from "react";
import { useSearchParams } from "wouter";

import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { DownloadIcon } from "@/components/icons";
import { Panel } from "@/components/layout/panel";
import { useNow } from "@/format/use-now";

import { bucketFor, BUCKETS, PERIODS, stretch, type Bucket, type Period, type Stretch } from "./periods";
import { CostsPanel, CostsTable } from "./costs-panel";
import { chartOf, GROUPS, METRICS, type Group, type Metric } from "./series";
import { Summary } from "./summary";
import { BucketTable, GroupTable, NAMES } from "./usage-tables";
import { csvAddress, useUsage, type Whose } from "./use-usage";

const UsageChart = lazy(() => import("./usage-chart"));

/** What is looked at; it stands in the address, so that a reload or a link shows the same. */
interface View {
  period: Period;
  bucket: Bucket;
  by: Group | null;
  metric: Metric;
}

function useView(groups: readonly Group[]): [View, (change: Partial<View>) => void] {
  const [search, setSearch] = useSearchParams();
  const period = PERIODS.find(({ value }) => value === search.get("period"))?.value ?? "24h";
  const wished = BUCKETS.find(({ value }) => value === search.get("bucket"))?.value ?? "1h";
  const view: View = {
    period,
    bucket: bucketFor(period, wished),
    by: groups.find((each) => each === search.get("by")) ?? null,
    metric: METRICS.find(({ value }) => value === search.get("of"))?.value ?? "tokens",
  };
  const change = (changed: Partial<View>): void => {
    const { by, ...next } = { ...view, ...changed };
    const address = new URLSearchParams({ period: next.period, bucket: next.bucket, of: next.metric });
    if (by !== null) address.set("by", by);
    setSearch(address, { replace: true });
  };
  return [view, change];
}

/** Usage of a tenant, or of everybody: how much, when, and by whom. */
export function UsageReport({ whose }: { whose: Whose }) {
  const groups = GROUPS.filter((each) => whose === null || each !== "tenant");
  const [view, change] = useView(groups);
  const shown = stretch(view.period, view.bucket, useNow());
  const query = useUsage(whose, shown, view.by);
  return (
    <Stack gap="md" data-testid="usage" data-busy={query.isPlaceholderData || undefined}>
      <Row justify="space-between" align="flex-end" gap="sm">
        <Controls view={view} groups={groups} onChange={change} />
        <Button
          component="a"
          href={csvAddress(whose, shown, view.by)}
          download={`usage-${whose ?? "all"}.csv`}
          variant="default"
          leftSection={<DownloadIcon />}
        >
          CSV
        </Button>
      </Row>
      <QueryState query={query}>
        {(rows) => (
          <Stack gap="md">
            <Summary rows={rows} />
            <ChartPanel rows={rows} shown={shown} view={view} onChange={change} />
            {rows.length > 0 && <CostsPanel rows={rows} />}
            {view.by !== null && rows.length > 0 && (
              <>
                <GroupTable rows={rows} by={view.by} />
                <CostsTable rows={rows} by={view.by} />
              </>
            )}
            {rows.length > 0 && <BucketTable rows={rows} by={view.by} bucket={view.bucket} />}
          </Stack>
        )}
      </QueryState>
    </Stack>
  );
}

interface ControlsProps {
  view: View;
  groups: readonly Group[];
  onChange: (change: Partial<View>) => void;
}

function Controls({ view, groups, onChange }: ControlsProps) {
  const hoursFit = bucketFor(view.period, "1h") === "1h";
  return (
    <Row gap="sm" align="flex-end">
      <Select
        label="Period"
        w={160}
        data={PERIODS.map(({ value, label }) => ({ value, label }))}
        value={view.period}
        allowDeselect={false}
        onChange={(value) => {
          onChange({ period: PERIODS.find((each) => each.value === value)?.value ?? view.period });
        }}
      />
      <Select
        label="Grouped by"
        w={150}
        data={[{ value: "", label: "nothing" }, ...groups.map((value) => ({ value, label: NAMES[value].toLowerCase() }))]}
        value={view.by ?? ""}
        allowDeselect={false}
        onChange={(value) => {
          onChange({ by: groups.find((each) => each === value) ?? null });
        }}
      />
      <SegmentedControl
        aria-label="Bucket"
        data={BUCKETS.map(({ value, label }) => ({ value, label, disabled: value === "1h" && !hoursFit }))}
        value={view.bucket}
        onChange={(value) => {
          onChange({ bucket: value === "1h" ? "1h" : "1d" });
        }}
      />
    </Row>
  );
}

interface ChartPanelProps {
  rows: Parameters<typeof chartOf>[0];
  shown: Stretch;
  view: View;
  onChange: (change: Partial<View>) => void;
}

function ChartPanel({ rows, shown, view, onChange }: ChartPanelProps) {
  const { metric, by, bucket } = view;
  const choice = (
    <SegmentedControl
      size="xs"
      aria-label="What the chart shows"
      data={METRICS.map(({ value, label }) => ({ value, label }))}
      value={metric}
      onChange={(value) => {
        onChange({ metric: value === "requests" ? "requests" : "tokens" });
      }}
    />
  );
  return (
    <Panel title={metric === "tokens" ? "Tokens" : "Requests"} note={choice} testId="usage-chart">
      {rows.length === 0 ? (
        <Empty title="No requests in this period">
          <Text fz="sm" c="dimmed">
            A request counts once it has ended.
          </Text>
        </Empty>
      ) : (
        <Suspense fallback={<Skeleton height={292} />}>
          <UsageChart chart={chartOf(rows, shown, by, metric)} bucket={bucket} metric={metric} />
        </Suspense>
      )}
    </Panel>
  );
}
