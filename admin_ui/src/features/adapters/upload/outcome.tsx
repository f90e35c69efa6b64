import { Alert, Button, Group, Stack, Text } from "@mantine/core";
import { Link } from "wouter";

import type { Version } from "@/api/types";
import { Panel } from "@/components/layout/panel";

import { adapterAddress, versionAddress } from "../addresses";
import { StateBadge } from "../state-badge";
import { useAdapter } from "../use-adapters";

/** What became of an upload, looked at until there is a verdict. */
export function Outcome({ slug, version, onAnother }: { slug: string; version: Version; onAnother: () => void }) {
  const { adapter, number } = version;
  const newest = useAdapter(slug, adapter).data?.versions.find((each) => each.number === number) ?? version;
  return (
    <Panel testId="outcome">
      <Stack gap="md" py="sm">
        <Group gap="sm">
          <Text fw={600}>
            {adapter}:{number}
          </Text>
          <StateBadge version={newest} />
        </Group>
        <Text fz="sm" aria-live="polite">
          {sentence(newest, version)}
        </Text>
        {newest.reject_detail !== null && (
          <Alert color={newest.state === "rejected" ? "red" : "orange"} variant="light" p="xs">
            <Text fz="sm" style={{ overflowWrap: "anywhere" }}>
              <Text span ff="monospace" fz="sm" fw={600} mr={8} c="inherit">
                {newest.reject_code}
              </Text>
              {newest.reject_detail}
            </Text>
          </Alert>
        )}
        {newest.warnings.map((warning) => (
          <Alert key={warning} color="yellow" variant="light" p="xs">
            {warning}
          </Alert>
        ))}
        <Group gap="xs">
          <Button component={Link} to={versionAddress(slug, adapter, number)}>
            Version {number}
          </Button>
          <Button component={Link} to={adapterAddress(slug, adapter)} variant="default">
            {adapter}
          </Button>
          <Button variant="subtle" color="gray" onClick={onAnother}>
            Upload another
          </Button>
        </Group>
      </Stack>
    </Panel>
  );
}

/** A version that is ready the moment it is sealed was there before. */
function sentence(newest: Version, sealed: Version): string {
  if (sealed.state === "ready") return "This content was there already; nothing new was made of it.";
  switch (newest.state) {
    case "validating":
      return "Everything arrived. It is being checked, compared with PEFT and tried in the engine.";
    case "ready":
      return "It passed every check and can be served.";
    case "rejected":
      return "It can't be served exactly, so it isn't served at all.";
    case "failed_internal":
      return "The check broke off for a reason of ours. It can be checked again on its page.";
    default:
      return `It is ${newest.state}.`;
  }
}
