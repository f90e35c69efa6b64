import { Alert, Badge, Group, List, Skeleton, Stack, Text, VisuallyHidden } from "@mantine/core";
import { useEffect, useState } from "react";

import type { CapacityPlan, EngineReport } from "@/api/types";
import { FailureNotice } from "@/components/feedback/query-state";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { Prose } from "@/components/prose";
import { significant } from "@/format/quantities";
import { MemoryTable } from "@/features/engine/memory-table";
import { useEngine } from "@/features/performance/use-engine";

import { CalibrationPanel } from "./answer/calibration-panel";
import { ConcurrencyPanel } from "./answer/concurrency-panel";
import { CurvePanel } from "./answer/curve-panel";
import { EstimatePanel } from "./answer/estimate-panel";
import { LoraPanel } from "./answer/lora-panel";
import { RecommendedPanel } from "./answer/recommended-panel";
import { SizingPanel } from "./answer/sizing-panel";
import { addressOf, draftOf, read, type Draft, type Problems } from "./question/draft";
import { fieldOf } from "./question/fields";
import { QuestionForm, type Running } from "./question/question-form";
import { usePlan } from "./use-plan";

const ADDRESS_AFTER_MS = 500;

/** The draft is kept here and written into the address when it rests: browsers limit how often that may change. */
function useDraft(): [Draft, (draft: Draft) => void] {
  const [draft, setDraft] = useState(() => draftOf(new URLSearchParams(window.location.search)));
  const address = addressOf(draft).toString();
  useEffect(() => {
    const timer = setTimeout(() => {
      window.history.replaceState(null, "", address === "" ? window.location.pathname : `?${address}`);
    }, ADDRESS_AFTER_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [address]);
  return [draft, setDraft];
}

/** What a model on a device carries, answered while sliders move. */
export function PlannerPage() {
  const engine = useEngine();
  const [draft, setDraft] = useDraft();
  const { question, problems } = read(draft);
  const { plan, refusal, isStale, refetch } = usePlan(question);
  const field = fieldOf(refusal?.param ?? null, draft);
  const refused: Problems = refusal !== null && field !== null ? { [field]: refusal.message } : {};
  const isAnswered = problems === null && refusal === null;
  return (
    <Page title="Planner" testId="planner" subtitle="What a model on a device carries, from the same formulas that the engine counts with.">
      <div className="planner">
        <QuestionForm draft={draft} onChange={setDraft} problems={problems ?? refused} running={runningOf(engine.data)} />
        <Stack gap="md" aria-busy={isStale && isAnswered}>
          <VisuallyHidden role="alert">{field !== null && refusal?.message}</VisuallyHidden>
          {refusal !== null && field === null && <FailureNotice error={refusal} onRetry={() => void refetch()} />}
          {plan !== undefined && !isAnswered && (
            <Alert color="yellow" variant="light" p="sm" role="status" data-testid="last-answer">
              This question has no answer yet. Below is that to the last one that had.
            </Alert>
          )}
          {plan !== undefined && <Answer plan={plan} isStale={isStale} />}
          {plan === undefined && isAnswered && <Skeleton height={420} role="status" aria-label="Loading" />}
        </Stack>
      </div>
    </Page>
  );
}

/** The names that a plan knows the running engine's model and device by. */
function runningOf(report: EngineReport | undefined): Running | undefined {
  return report && { model: report.model, device: report.performance?.device ?? report.device };
}

function Answer({ plan, isStale }: { plan: CapacityPlan; isStale: boolean }) {
  return (
    <Stack gap="md" data-testid="plan" data-stale={isStale || undefined}>
      <Group gap="xs" mih={28}>
        <Badge color={plan.basis === "live" ? "green" : "gray"} size="lg" data-testid="basis">
          {plan.basis === "live" ? "Calibrated from the running engine" : "From formulas"}
        </Badge>
        <Text fz="sm" c="dimmed" data-testid="subject">
          <Text span fw={600} c="var(--mantine-color-text)" fz="sm">
            {plan.model}
          </Text>
          {` · ${plan.device}`}
        </Text>
      </Group>
      <VisuallyHidden role="status">
        {`${significant(plan.theoretical_concurrency)} requests of this workload fit at once.`}
      </VisuallyHidden>
      <EstimatePanel plan={plan} />
      <Notes notes={plan.notes} />
      <SizingPanel steps={plan.steps} />
      <RecommendedPanel knobs={plan.knobs} />
      <Panel title="Memory" testId="planned-memory">
        <MemoryTable label="Planned memory" rows={plan.memory} available={plan.available_bytes} />
      </Panel>
      <ConcurrencyPanel plan={plan} />
      <CurvePanel plan={plan} />
      {plan.lora && <LoraPanel lora={plan.lora} />}
      {plan.calibration && <CalibrationPanel calibration={plan.calibration} />}
    </Stack>
  );
}

function Notes({ notes }: { notes: readonly string[] }) {
  if (notes.length === 0) return null;
  return (
    <Alert color="gray" variant="light" p="sm" title="Assumed" role="note" data-testid="notes">
      <List fz="sm" spacing={2}>
        {notes.map((note) => (
          <List.Item key={note}>
            <Prose>{note}</Prose>
          </List.Item>
        ))}
      </List>
    </Alert>
  );
}
