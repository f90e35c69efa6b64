import { SimpleGrid, Stack } from "@mantine/core";

import type { EngineDesign, Performance } from "@/api/types";
import { Figure } from "@/components/figures/figure";
import { StackedBar } from "@/components/figures/stacked-bar";
import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { counted, grouped, percent } from "@/format/numbers";
import { significant } from "@/format/quantities";

const HELP = {
  panel: "Keys and values of the tokens that requests have read and written. It is handed out in blocks; what fits into it bounds how many requests can run.",
  blocks: "A request takes whole blocks as it grows, and gives them back when it ends.",
  tokens: "Tokens of all running requests together, prompts and answers.",
  theoretical: "The pool's tokens divided by the longest context: as many requests of full length fit at once.",
  suggested: "About 65 % of the theoretical concurrency: requests grow while they run, and a pool without room preempts.",
  seats: "How many requests may run at once. Shorter ones than the longest context need less of the pool, so that it may well be higher.",
  peak: "The most that was in use at once since the engine's start.",
};

/** How much context fits, and what that means for concurrency. */
export function PoolPanel({ design, performance }: { design: EngineDesign; performance: Performance | null }) {
  const { n_blocks, block_size, block_bytes, max_model_len, max_num_seqs } = design;
  const pool = n_blocks * block_bytes;
  const peak = performance?.kv_peak_bytes ?? 0;
  return (
    <Panel title="KV pool" help={HELP.panel} note={humanBytes(pool)} testId="pool">
      <Stack gap="md">
        <SimpleGrid cols={2} spacing="md">
          <Figure
            term="Blocks"
            help={HELP.blocks}
            value={grouped(n_blocks)}
            note={`of ${counted(block_size, "token")}, ${humanBytes(block_bytes)} each`}
            testId="pool-blocks"
          />
          <Figure
            term="Tokens"
            help={HELP.tokens}
            value={grouped(n_blocks * block_size)}
            note={`${grouped(max_model_len)} in the longest context`}
            testId="pool-tokens"
          />
          <Figure
            term="Theoretical concurrency"
            help={HELP.theoretical}
            value={significant(design.theoretical_concurrency)}
            note="requests of full length"
            testId="theoretical"
          />
          <Figure
            term="Suggested"
            help={HELP.suggested}
            value={grouped(design.suggested_max_num_seqs)}
            note="requests of full length at once"
            testId="suggested"
          />
          <Figure
            term="Seats"
            help={HELP.seats}
            value={grouped(max_num_seqs)}
            note="LORIKEET_ENGINE__MAX_NUM_SEQS"
            testId="seats"
          />
          <Figure
            term="Peak in use"
            help={HELP.peak}
            value={performance ? percent(peak, pool) : "–"}
            note={performance ? humanBytes(peak) : "too little seen yet"}
            testId="kv-peak"
          />
        </SimpleGrid>
        <StackedBar parts={[{ key: "peak", value: Math.min(peak, pool), paint: "var(--lk-used)" }]} whole={Math.max(pool, 1)} height={8} />
      </Stack>
    </Panel>
  );
}
