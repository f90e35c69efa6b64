import { SimpleGrid } from "@mantine/core";

import { Figure } from "@/components/figures/figure";
import { Panel } from "@/components/layout/panel";
import { grouped, percent } from "@/format/numbers";

import { tokensOf, totals, type Totals } from "./series";

const HELP = {
  tokens: "Prompt and answer tokens of the requests that ended.",
  requests: "Requests that ended, whichever way.",
  prompt: "Tokens of the prompts, chat template included.",
  answer: "Tokens that were generated.",
};

/** The whole period in four figures. */
export function Summary({ rows }: { rows: readonly Totals[] }) {
  const whole = totals(rows);
  return (
    <Panel testId="usage-summary">
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="md">
        <Figure term="Tokens" help={HELP.tokens} value={grouped(tokensOf(whole))} note="prompt and answer" testId="sum-tokens" />
        <Figure
          term="Requests"
          help={HELP.requests}
          value={grouped(whole.requests)}
          note={`${grouped(whole.errors)} failed`}
          testId="sum-requests"
        />
        <Figure
          term="Prompt tokens"
          help={HELP.prompt}
          value={grouped(whole.prompt_tokens)}
          note={`${percent(whole.cached_tokens, whole.prompt_tokens)} from the cache`}
          testId="sum-prompt"
        />
        <Figure
          term="Answer tokens"
          help={HELP.answer}
          value={grouped(whole.completion_tokens)}
          note={whole.requests === 0 ? "–" : `${grouped(Math.round(whole.completion_tokens / whole.requests))} a request`}
          testId="sum-answer"
        />
      </SimpleGrid>
    </Panel>
  );
}
