import { SimpleGrid, Text } from "@mantine/core";

import type { Performance } from "@/api/types";
import { Figure } from "@/components/figures/figure";
import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { percent } from "@/format/numbers";
import { significant } from "@/format/quantities";

const HELP = {
  batching: "How many tokens a step computed: the more, the more requests share one reading of the weights.",
  reads: "Bytes that decode steps read for each token that they made. Batching divides the weights among the requests; each one's own context stays.",
  interference: "How long prompts took, over what they would have taken alone by a model fitted to the steps: the price of sharing steps with others.",
  again: "HFU counts what the device computed, MFU what the model needs. The difference was computed again after preemptions.",
};

/** What batching gives and what it takes. */
export function EffectsPanel({ performance }: { performance: Performance }) {
  const { tokens_per_step, read_bytes_per_token, interference, hfu, mfu } = performance;
  return (
    <Panel title="Batching" testId="effects">
      <SimpleGrid cols={2} spacing="md">
        <Figure
          term="Tokens a step"
          help={HELP.batching}
          value={significant(tokens_per_step)}
          note="steps of all kinds"
          testId="tokens-per-step"
        />
        <Figure
          term="Read a token"
          help={HELP.reads}
          value={read_bytes_per_token === null ? "–" : humanBytes(Math.round(read_bytes_per_token))}
          note="weights, context and adapters"
          testId="read-per-token"
        />
        <Figure
          term="Interference"
          help={HELP.interference}
          value={interference === null ? "–" : `${significant(interference)} ×`}
          note={interference === null ? "no prompt was measured" : "of a prompt's time alone"}
          testId="interference"
        />
        <Figure
          term="Computed again"
          help={HELP.again}
          value={percent(Math.max(0, hfu - mfu), hfu)}
          note={`HFU ${percent(hfu, 1)}, of it needed ${percent(mfu, 1)}`}
          testId="computed-again"
        />
      </SimpleGrid>
      <Text fz="xs" c="dimmed" mt="sm">
        HFU and MFU are of the whole window here, idle time included; by kind of step they are in the table.
      </Text>
    </Panel>
  );
}
