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
      <Text fz="sm" style={{ whiteSpace: "nowrap" }}>{relative === null ? "not compared" : `within ${tiny(relative)} of PEFT`}</Text>
      <Text fz="xs" c="dimmed">
        {effectWord(certificate.effect)}
      </Text>
    </>
  );
}
