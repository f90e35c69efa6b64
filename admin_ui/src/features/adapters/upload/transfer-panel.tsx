import { Alert, Button, Group, Progress, Stack, Text } from "@mantine/core";

import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { duration } from "@/format/time";

import { bytesPerSecond, secondsLeft } from "./meter";
import { amounts, isRunning, type Phase, type UploadProgress } from "./progress";

const WORDS: Record<Phase, string> = {
  choosing: "Nothing is sent yet",
  reading: "Reading the files",
  sending: "Sending",
  paused: "Paused",
  interrupted: "Interrupted",
  sealing: "Making a version of it",
  sealed: "Done",
};

interface TransferPanelProps {
  progress: UploadProgress;
  /** Why it can't start, as a sentence. */
  obstacle: string | null;
  onStart: () => void;
  onPause: () => void;
}

/** How far all files together are, how fast, and the one thing that can be done about it. */
export function TransferPanel({ progress, obstacle, onStart, onPause }: TransferPanelProps) {
  const { phase, failure } = progress;
  const { done, whole } = amounts(progress);
  return (
    <Panel testId="transfer">
      <Stack gap="sm" data-phase={phase}>
        {phase === "interrupted" && failure !== null && (
          <Alert color="orange" variant="light" p="xs" role="alert">
            <Text fz="sm">
              {failure.status === 0 ? "The line is gone. It goes on by itself when the line is back." : failure.message}
            </Text>
            {failure.requestId !== null && (
              <Text fz="xs" ff="monospace">
                Request {failure.requestId}
              </Text>
            )}
          </Alert>
        )}
        <Group justify="space-between" gap="sm">
          <div>
            <Text fz="sm" fw={600} aria-live="polite" data-testid="phase">
              {WORDS[phase]}
            </Text>
            <Text fz="sm" c="dimmed" data-testid="pace">
              {obstacle ?? pace(progress)}
            </Text>
          </div>
          {isRunning(phase) ? (
            <Button variant="default" disabled={phase === "sealing"} onClick={onPause}>
              Pause
            </Button>
          ) : (
            <Button disabled={obstacle !== null} onClick={onStart}>
              {phase === "choosing" ? "Upload" : "Resume"}
            </Button>
          )}
        </Group>
        {phase !== "choosing" && (
          <Progress
            value={whole === 0 ? 0 : (100 * done) / whole}
            color="wing"
            size="lg"
            striped={phase === "reading"}
            aria-label={`${WORDS[phase]}, all files`}
          />
        )}
        {isRunning(phase) && (
          <Text fz="xs" c="dimmed">
            Whoever leaves this page pauses it; the server keeps what arrived.
          </Text>
        )}
      </Stack>
    </Panel>
  );
}

function pace(progress: UploadProgress): string {
  const { done, whole } = amounts(progress);
  const rate = bytesPerSecond(progress.meter);
  const left = secondsLeft(progress.meter, whole - done);
  const of = progress.phase === "choosing" ? humanBytes(whole) : `${humanBytes(done)} of ${humanBytes(whole)}`;
  return [of, rate === null ? null : `${humanBytes(Math.round(rate))}/s`, left === null ? null : `${duration(Math.ceil(left))} left`]
    .filter((part) => part !== null)
    .join(" · ");
}
