import { Text } from "@mantine/core";

import type { Version } from "@/api/types";
import { tiny } from "@/format/numbers";

import { effectWord, relativeDifference } from "./version/reading";

/** A certificate in two lines of a table. */
export function CertificateSummary({ version }: { version: Version }) {
  const { certificate } = version;
  if (certificate === null) return <>–</>;
  const relative = relativeDifference(certificate);
  return (
    <>
      <Text fz="sm">{relative === null ? "not compared with PEFT" : `within ${tiny(relative)} of PEFT`}</Text>
      <Text fz="xs" c="dimmed">
        {effectWord(certificate.effect)}
      </Text>
    </>
  );
}
