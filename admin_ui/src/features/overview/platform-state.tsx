import { Alert, Anchor, Text } from "@mantine/core";
import { Link } from "wouter";

import type { Overview } from "@/api/types";
import { counted, grouped } from "@/format/numbers";
import { dateTime } from "@/format/time";

/** How much there is of everything, and when the books were last compared. */
export function PlatformLine({ overview }: { overview: Overview }) {
  const { tenants, adapters_ready, jobs_open, gateways, books } = overview;
  const facts = [
    counted(gateways, "gateway"),
    counted(tenants, "tenant"),
    `${grouped(adapters_ready)} ${adapters_ready === 1 ? "adapter" : "adapters"} ready`,
    `${grouped(jobs_open)} ${jobs_open === 1 ? "job" : "jobs"} open`,
    ...(books?.mismatches === 0 ? [`books agree, ${dateTime(books.checked_at)}`] : []),
  ];
  return (
    <Text fz="sm" c="dimmed" data-testid="platform-line">
      {facts.join(" · ")}
    </Text>
  );
}

/** What somebody should look into; nothing when all is well. */
export function PlatformTroubles({ overview: { rates_degraded, books } }: { overview: Overview }) {
  const troubles = [
    ...(rates_degraded
      ? ["Redis can’t be reached in time: this gateway counts its share of the rates alone until it is back."]
      : []),
    ...(books?.mismatches === null ? ["The last comparison of records, budgets and roll-ups failed."] : []),
    ...(books?.mismatches
      ? [`Records, budgets and roll-ups disagree on ${counted(books.mismatches, "sum")}; compared ${dateTime(books.checked_at)}.`]
      : []),
  ];
  return troubles.map((sentence) => (
    <Alert key={sentence} color="orange" variant="light" p="sm" data-testid="platform-trouble">
      <Text fz="sm">
        {sentence}{" "}
        <Anchor component={Link} to="/jobs" fz="sm" underline="always">
          Jobs
        </Anchor>
      </Text>
    </Alert>
  ));
}
