import { Button, Collapse, Group, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";

import type { Adapter, Alias } from "@/api/types";
import { Dialog } from "@/components/layout/dialog";
import { dateTime } from "@/format/time";

import { AliasEditor } from "./alias-editor";
import { AliasHistory } from "./alias-history";
import { ConfirmChange, type Confirmation } from "./confirm-change";
import { canaryTarget, guardInWords, mainTarget, stickyInWords, wholly } from "./shares";
import { WeightBar } from "./weight-bar";

interface AliasRowProps {
  slug: string;
  adapter: Adapter;
  alias: Alias;
}

/** One alias: where it sends requests, under which rules, and what can be done with it. */
export function AliasRow({ slug, adapter, alias }: AliasRowProps) {
  const [editing, setEditing] = useState<"edit" | "canary" | null>(null);
  const [confirmation, setConfirmation] = useState<Confirmation | null>(null);
  const [showsHistory, { toggle }] = useDisclosure(false);
  const close = () => {
    setEditing(null);
  };
  return (
    <div className="alias" data-testid={`alias-${alias.alias}`} data-revision={alias.revision}>
      <div className="alias-what">
        <Text ff="monospace" fw={600} fz="sm" style={{ overflowWrap: "anywhere" }}>
          {alias.alias}
        </Text>
        <Stack gap={6}>
          <WeightBar targets={alias.targets} />
          <Text fz="xs" c="dimmed" data-testid={`alias-rules-${alias.alias}`}>
            {[stickyInWords(alias.sticky), guardInWords(alias.guard)].join(" · ")}
          </Text>
          <Text fz="xs" c="dimmed" style={{ overflowWrap: "anywhere" }}>
            revision {alias.revision} by {alias.updated_by}, {dateTime(alias.updated_at)}
          </Text>
        </Stack>
      </div>
      <Group gap={6} className="alias-actions">
        <Moves alias={alias} adapter={adapter} onEdit={setEditing} onConfirm={setConfirmation} />
        <Button size="compact-sm" variant="subtle" color="gray" onClick={toggle} aria-expanded={showsHistory}>
          History
        </Button>
        <Button
          size="compact-sm"
          variant="subtle"
          color="gray"
          aria-label={`Remove alias ${alias.alias}`}
          onClick={() => {
            setConfirmation(removal(adapter, alias));
          }}
        >
          Remove
        </Button>
      </Group>
      <Collapse expanded={showsHistory} transitionDuration={0}>
        {showsHistory && <AliasHistory slug={slug} adapter={adapter} alias={alias} onConfirm={setConfirmation} />}
      </Collapse>
      <Dialog opened={editing !== null} onClose={close} title={`Alias ${alias.alias}`} size="lg">
        <AliasEditor slug={slug} adapter={adapter} alias={alias} startsCanary={editing === "canary"} onDone={close} />
      </Dialog>
      <ConfirmChange
        slug={slug}
        name={adapter.name}
        alias={alias}
        confirmation={confirmation}
        onClose={() => {
          setConfirmation(null);
        }}
      />
    </div>
  );
}

interface MovesProps {
  alias: Alias;
  adapter: Adapter;
  onEdit: (how: "edit" | "canary") => void;
  onConfirm: (confirmation: Confirmation) => void;
}

/** With a version on trial: promote it or break off. Without: start a trial. Always: everything at once. */
function Moves({ alias, adapter, onEdit, onConfirm }: MovesProps) {
  const [main, canary] = [mainTarget(alias.targets), canaryTarget(alias.targets)];
  const readyOnes = adapter.versions.filter(({ state }) => state === "ready").length;
  return (
    <>
      {main && canary ? (
        <>
          <Button
            size="compact-sm"
            onClick={() => {
              onConfirm(settle(alias, canary.version, `Promote version ${canary.version}`, "Promote"));
            }}
          >
            Promote {canary.version}
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            onClick={() => {
              onConfirm(settle(alias, main.version, "Abort the canary", "Abort"));
            }}
          >
            Abort
          </Button>
        </>
      ) : (
        <Button
          size="compact-sm"
          variant="default"
          disabled={readyOnes < 2}
          title={readyOnes < 2 ? "A canary needs a second version that is ready." : undefined}
          onClick={() => {
            onEdit("canary");
          }}
        >
          Start canary
        </Button>
      )}
      <Button
        size="compact-sm"
        variant="default"
        aria-label={`Edit alias ${alias.alias}`}
        onClick={() => {
          onEdit("edit");
        }}
      >
        Edit
      </Button>
    </>
  );
}

function removal(adapter: Adapter, alias: Alias): Confirmation {
  return {
    title: `Remove alias ${alias.alias}?`,
    verb: "Remove",
    sentence: `Requests for ${adapter.name}@${alias.alias} are refused from then on. Its history stays, and the alias can be made again.`,
    takesReason: false,
    danger: true,
    change: () => ({ kind: "remove" }),
  };
}

/** Everything to one version; stickiness and guard stay as they are. */
function settle(alias: Alias, version: number, title: string, verb: string): Confirmation {
  return {
    title,
    verb,
    sentence: `${alias.alias} will send every request to version ${version}. What is running ends on the version it began on.`,
    change: (reason) => ({
      kind: "set",
      body: { targets: wholly(version), sticky: alias.sticky, guard: alias.guard, ...(reason ? { reason } : {}) },
    }),
  };
}
