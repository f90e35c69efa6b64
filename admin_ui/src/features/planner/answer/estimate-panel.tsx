import { SimpleGrid, Stack, Table, Text } from "@mantine/core";

import type { CapacityPlan, Estimated } from "@/api/types";
import { ErrorBar } from "@/components/figures/error-bar";
import { Figure } from "@/components/figures/figure";
import { FigureTable } from "@/components/figures/figure-table";
import { Panel } from "@/components/layout/panel";
import { Term } from "@/components/term";
import { humanBytes } from "@/format/bytes";
import { counted, grouped, rate } from "@/format/numbers";
import { significant } from "@/format/quantities";
import { latency } from "@/format/time";

const HELP = {
  panel: "Means over the requests of a simulated run of this workload, on one engine.",
  fits: "Requests of this workload that the KV pool holds at once, each at its full length.",
  kv: "Keys and values of one request at its end, prompt and answer, in whole blocks.",
  balanced: "The batch at which an answer's token reads as much KV as weights. Beyond it a larger batch gains little.",
  replicas: "Engines like this one that carry the whole load.",
};

const LINES = [
  { key: "ttft_s", term: "First token (TTFT)", help: "From sending a request to its first token.", written: latency },
  { key: "itl_s", term: "Next token (ITL)", help: "From one token of an answer to its next.", written: latency },
  { key: "total_s", term: "Whole request", help: "From sending a request to its last token.", written: latency },
  { key: "output_tokens_per_s", term: "Answer tokens a second", help: "Of all requests together.", written: rate },
] as const;

/** What to expect: how many fit, and how fast they are. */
export function EstimatePanel({ plan }: { plan: CapacityPlan }) {
  return (
    <Panel title="Estimate" help={HELP.panel} note={plan.basis === "live" ? "calibrated" : "from formulas"} testId="estimate">
      <Stack gap="md">
        <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="md">
          <Figure
            term="Fit at once"
            help={HELP.fits}
            value={significant(plan.theoretical_concurrency)}
            note="requests of this workload"
            testId="fits"
          />
          <Figure
            term="KV a request"
            help={HELP.kv}
            value={humanBytes(plan.request_kv_bytes)}
            note={`of ${counted(plan.pool_tokens, "token")}`}
            testId="request-kv"
          />
          <Figure
            term="Balanced batch"
            help={HELP.balanced}
            value={significant(plan.balanced_batch)}
            note="KV read = weights read"
            testId="balanced"
          />
          <Figure
            term="Engines"
            help={HELP.replicas}
            value={plan.replicas == null ? "–" : grouped(plan.replicas)}
            note={plan.replicas == null ? "not known" : "for the whole load"}
            testId="replicas"
          />
        </SimpleGrid>
        <Times estimate={plan.estimate ?? null} />
        {plan.estimate && plan.basis === "formulas" && (
          <Text fz="xs" c="dimmed">
            How far off formulas are is not known; a calibration from the running engine knows it of itself.
          </Text>
        )}
      </Stack>
    </Panel>
  );
}

function Times({ estimate }: { estimate: CapacityPlan["estimate"] | null }) {
  if (!estimate) {
    return (
      <Text fz="sm" c="dimmed">
        No times are estimated for this workload; the notes say why.
      </Text>
    );
  }
  return (
    <FigureTable label="Estimated times" names={[34, 50]}>
      <Table.Tbody>
        {LINES.map(({ key, term, help, written }) => (
          <Table.Tr key={key} data-testid={`estimate-${key}`}>
            <Table.Td>
              <Term help={help}>{term}</Term>
            </Table.Td>
            <Table.Td visibleFrom="sm">
              {estimate[key].high !== null && <ErrorBar {...estimate[key]} top={1.25 * estimate[key].high} />}
            </Table.Td>
            <Table.Td>
              <Text fz="sm" fw={600}>
                {written(estimate[key].value)}
              </Text>
              <Band {...estimate[key]} written={written} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </FigureTable>
  );
}

type BandProps = Estimated & { written: (value: number) => string };

function Band({ low, high, written }: BandProps) {
  if (low === null || high === null) return null;
  return (
    <Text fz="xs" c="dimmed">
      {written(low)} – {written(high)}
    </Text>
  );
}
