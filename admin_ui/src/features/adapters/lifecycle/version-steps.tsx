import { ActionIcon, Button, Group, Menu, Text } from "@mantine/core";
import { useState } from "react";

import type { Alias, Version } from "@/api/types";
import { MoreIcon } from "@/components/icons";
import { useNow } from "@/format/use-now";

import { StepDialog } from "./step-dialog";
import { pointingAt, stepsOf, type Step } from "./steps";

interface VersionStepsProps {
  slug: string;
  version: Version;
  aliases: readonly Alias[];
}

function colorOf({ kind, obstacle }: Step): string | undefined {
  if (obstacle !== null) return "dimmed";
  return kind === "quarantine" || kind === "delete" ? "var(--mantine-color-red-light-color)" : undefined;
}

/** The steps of a version behind three dots, for a row of a table. */
export function VersionMenu({ slug, version, aliases }: VersionStepsProps) {
  const [step, setStep] = useState<Step | null>(null);
  const steps = stepsOf(version, aliases, useNow());
  if (steps.length === 0) return null;
  return (
    <>
      <Menu
        position="bottom-end"
        withInitialFocusPlaceholder={false}
        withinPortal portalProps={{ target: "#content" }} transitionProps={{ duration: 0 }}>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" aria-label={`Steps for version ${version.number}`}>
            <MoreIcon />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown maw={280}>
          {steps.map((each, at) => (
            // What can't be taken stays in reach of the keyboard, so that its reason is read, too.
            <Menu.Item
              key={each.kind}
              data-autofocus={at === 0 || undefined}
              aria-disabled={each.obstacle !== null}
              closeMenuOnClick={each.obstacle === null}
              onClick={() => {
                if (each.obstacle === null) setStep(each);
              }}
            >
              <Text fz="sm" c={colorOf(each)}>
                {each.label}
              </Text>
              {each.obstacle !== null && (
                <Text fz="xs" c="dimmed" style={{ whiteSpace: "normal", overflowWrap: "anywhere" }}>
                  {each.obstacle}
                </Text>
              )}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      <VersionDialog slug={slug} version={version} aliases={aliases} step={step} onStep={setStep} />
    </>
  );
}

/** The same steps as buttons, with what stands in their way below them. */
export function VersionButtons({ slug, version, aliases }: VersionStepsProps) {
  const [step, setStep] = useState<Step | null>(null);
  const steps = stepsOf(version, aliases, useNow());
  return (
    <>
      <Group gap="xs">
        {steps.map((each) => (
          <Button
            key={each.kind}
            size="sm"
            variant="default"
            c={each.obstacle === null ? colorOf(each) : undefined}
            disabled={each.obstacle !== null}
            title={each.obstacle ?? undefined}
            onClick={() => {
              setStep(each);
            }}
          >
            {each.label}
          </Button>
        ))}
      </Group>
      <VersionDialog slug={slug} version={version} aliases={aliases} step={step} onStep={setStep} />
    </>
  );
}

function VersionDialog({ onStep, aliases, ...rest }: VersionStepsProps & { step: Step | null; onStep: (step: null) => void }) {
  return (
    <StepDialog
      {...rest}
      aliases={pointingAt(rest.version, aliases)}
      onClose={() => {
        onStep(null);
      }}
    />
  );
}
