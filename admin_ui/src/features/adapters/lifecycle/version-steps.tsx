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

const DANGEROUS = new Set(["quarantine", "delete"]);

/** The steps of a version behind three dots, for a row of a table. */
export function VersionMenu({ slug, version, aliases }: VersionStepsProps) {
  const [step, setStep] = useState<Step | null>(null);
  const steps = stepsOf(version, aliases, useNow());
  if (steps.length === 0) return null;
  return (
    <>
      <Menu position="bottom-end" withinPortal portalProps={{ target: "#content" }} transitionProps={{ duration: 0 }}>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" aria-label={`Steps for version ${version.number}`}>
            <MoreIcon />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown maw={280}>
          {steps.map((each) => (
            <Menu.Item
              key={each.kind}
              color={DANGEROUS.has(each.kind) && each.obstacle === null ? "red" : undefined}
              disabled={each.obstacle !== null}
              onClick={() => {
                setStep(each);
              }}
            >
              {each.label}
              {each.obstacle !== null && (
                <Text fz="xs" style={{ whiteSpace: "normal", overflowWrap: "anywhere" }}>
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
            c={DANGEROUS.has(each.kind) && each.obstacle === null ? "var(--mantine-color-red-light-color)" : undefined}
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
