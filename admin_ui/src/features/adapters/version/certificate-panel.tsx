import { SimpleGrid, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Certificate } from "@/api/types";
import { Digest } from "@/components/digest";
import { Figure } from "@/components/figures/figure";
import { Panel } from "@/components/layout/panel";
import { counted, percent, tiny } from "@/format/numbers";
import { dateTime } from "@/format/time";

import { effectWord, relativeDifference } from "./reading";

const HELP = {
  panel: "Measured before the version could become ready; it never changes.",
  difference: "The largest difference of a logit from transformers + PEFT, both in float32, over all positions of the probe prompts.",
  agreement: "How many greedy tokens of the probes are those of PEFT.",
  neighbours: "Other adapters and the base model, in one batch with this adapter and without it.",
  alike: "The engine that serves it gave the same tokens to it and its neighbours, alone and together.",
  effect: "How far the adapter moves the base model's logits on the probes, as a share of them.",
};

/** What was measured, each figure beside what it is to be read by. */
export function CertificatePanel({ certificate }: { certificate: Certificate }) {
  const { oracle, n_probes, n_tokens, made_at, validator } = certificate;
  return (
    <Panel title="Certificate" help={HELP.panel} note={dateTime(made_at)} testId="certificate">
      <Stack gap="md">
        <SimpleGrid cols={{ base: 1, xs: 2, md: 4 }} spacing="md">
          <Parity certificate={certificate} />
          <Agreement certificate={certificate} />
          <Company certificate={certificate} />
          <Figure
            term="Effect"
            help={HELP.effect}
            value={effectWord(certificate.effect)}
            note={`${tiny(certificate.effect)} of the base model's logits`}
            testId="effect"
          />
        </SimpleGrid>
        <dl className="digests">
          <Fact name="Tensors">
            <Digest value={certificate.tensor_digest} />
          </Fact>
          <Fact name="Configuration">
            <Digest value={certificate.config_digest} />
          </Fact>
          <Fact name={certificate.base_model}>
            <Digest value={certificate.base_model_digest} />
          </Fact>
        </dl>
        <Text fz="xs" c="dimmed">
          {oracle === "peft" ? "Compared with transformers + PEFT in float32" : "Not compared with PEFT, which didn't fit beside the base model"}
          {" on "}
          {counted(n_probes, "probe prompt")}, {counted(n_tokens, "token")} · validator {validator}
        </Text>
      </Stack>
    </Panel>
  );
}

function Parity({ certificate }: { certificate: Certificate }) {
  const relative = relativeDifference(certificate);
  const { max_logit_difference: difference, logit_scale: scale } = certificate;
  return (
    <Figure
      term="Largest difference"
      help={HELP.difference}
      value={difference === null ? "–" : tiny(difference)}
      note={relative === null || scale === null ? "not compared" : `logits reach ${tiny(scale)}: ${tiny(relative)} of it`}
      testId="parity"
    />
  );
}

function Agreement({ certificate: { greedy_agreement: agreement, n_tokens } }: { certificate: Certificate }) {
  return (
    <Figure
      term="Greedy agreement"
      help={HELP.agreement}
      value={agreement === null ? "–" : percent(agreement, 1)}
      note={agreement === null ? "not compared" : `of ${counted(n_tokens, "token")}`}
      testId="agreement"
    />
  );
}

function Company({ certificate }: { certificate: Certificate }) {
  const { neighbours_unchanged, neighbour_max_logit_difference, served_alike } = certificate;
  const served = served_alike === null ? "not tried in an engine" : served_alike ? "alike in the engine" : "not alike in the engine";
  return (
    <Figure
      term="Neighbours"
      help={`${HELP.neighbours} ${HELP.alike}`}
      value={neighbours_unchanged ? "unchanged" : "changed"}
      note={`within ${tiny(neighbour_max_logit_difference)} · ${served}`}
      testId="neighbours"
    />
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
