import { Alert, List, Stack, Text } from "@mantine/core";

import type { Alias, Version } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { dateTime } from "@/format/time";
import { useNow } from "@/format/use-now";

import { obstaclesAmong, stepsOf } from "../lifecycle/steps";

/** What validation said, what happened to the version since, and what can't be done to it now and why. */
export function ReportPanel({ version, aliases }: { version: Version; aliases: readonly Alias[] }) {
  return (
    <Panel title="Validation report" testId="report">
      <Stack gap="sm">
        <Verdict version={version} />
        {version.warnings.map((warning) => (
          <Alert key={warning} color="yellow" variant="light" p="xs" title="Warning">
            {warning}
          </Alert>
        ))}
        <Since version={version} />
        {obstaclesAmong(stepsOf(version, aliases, useNow())).map(({ steps, why }) => (
          <Text key={why} fz="sm" c="dimmed" data-testid="obstacle">
            {steps}: {why}
          </Text>
        ))}
      </Stack>
    </Panel>
  );
}

function Verdict({ version }: { version: Version }) {
  if (version.reject_detail !== null) {
    const isOurs = version.state === "failed_internal";
    return (
      <Alert
        color={isOurs ? "orange" : "red"}
        variant="light"
        title={isOurs ? "The check broke off for a reason of ours" : "It can't be served exactly, so it isn't served"}
        data-testid={`version-reject-${version.adapter}-${version.number}`}
      >
        <Text fz="sm" style={{ overflowWrap: "anywhere" }}>
          <Text span ff="monospace" fz="sm" fw={600} mr={8} c="inherit">
            {version.reject_code}
          </Text>
          {version.reject_detail}
        </Text>
      </Alert>
    );
  }
  return <Text fz="sm">{sentence(version)}</Text>;
}

function sentence(version: Version): string {
  switch (version.state) {
    case "validating":
      return "Its files are being checked, then compared with PEFT and tried in the engine. This takes seconds to minutes.";
    case "failed_internal":
      return "The check broke off for a reason of ours. Check it again.";
    case "purged":
      return "Its files are removed; only this record is left.";
    default: {
      const warned = version.warnings.length > 0;
      const when = version.ready_at === null ? "" : ` on ${dateTime(version.ready_at)}`;
      return `It passed every check${when}${warned ? ", with warnings:" : "."}`;
    }
  }
}

/** Retired or quarantined: since when, why, and until when it can come back. */
function Since({ version }: { version: Version }) {
  const { state, retired_at, retire_reason, purge_after } = version;
  if (retired_at === null || (state !== "retired" && state !== "quarantined")) return null;
  const facts = [
    `${state === "retired" ? "Retired" : "Quarantined"} on ${dateTime(retired_at)}.`,
    purge_after === null ? null : `Its files are removed after ${dateTime(purge_after)}.`,
  ].filter((fact) => fact !== null);
  return (
    <Alert color={state === "retired" ? "gray" : "red"} variant="light" p="xs" data-testid="since">
      <List listStyleType="none" fz="sm">
        {facts.map((fact) => (
          <List.Item key={fact}>{fact}</List.Item>
        ))}
        {retire_reason !== null && <List.Item style={{ overflowWrap: "anywhere" }}>Reason: {retire_reason}</List.Item>}
      </List>
    </Alert>
  );
}
