import { Stack } from "@mantine/core";
import { useState } from "react";
import { useSearchParams } from "wouter";

import { Page } from "@/components/layout/page";

import { adapterAddress, tenantAddress } from "../addresses";
import { ChosenFiles } from "./chosen-files";
import { DropZone } from "./drop-zone";
import { fileSet, nameProblem } from "./file-set";
import { Outcome } from "./outcome";
import { StartedEarlier } from "./started-earlier";
import { TransferPanel } from "./transfer-panel";
import { useUpload } from "./use-upload";
import { WishForm, type WishFields } from "./wish-form";

const NO_WISH: Omit<WishFields, "adapter"> = { movesAlias: false, alias: "live", description: "" };

/** From a folder that PEFT saved to a version with its verdict. */
export function UploadPage({ slug }: { slug: string }) {
  const [search, setSearch] = useSearchParams();
  const [fields, setFields] = useState<WishFields>({ ...NO_WISH, adapter: search.get("adapter") ?? "" });
  const [chosen, setChosen] = useState<readonly File[]>([]);
  const { sent, notSent, problem } = fileSet(chosen);
  const upload = useUpload({
    slug,
    adapter: fields.adapter,
    alias: fields.movesAlias ? fields.alias : null,
    description: fields.description.trim(),
  });
  const { progress, isRunning } = upload;
  const isNamed = nameProblem(fields.adapter) === null;
  const isIdle = progress.phase === "choosing";

  function take(files: readonly File[]): void {
    const all = [...chosen, ...files];
    setChosen(all);
    upload.choose(fileSet(all).sent);
  }

  function clear(): void {
    setChosen([]);
    upload.choose([]);
  }

  function start(): void {
    // In the address, so that after a reload the page asks for what was begun under this name.
    setSearch({ adapter: fields.adapter }, { replace: true });
    upload.start();
  }

  return (
    <Page
      title={isNamed ? `Upload ${fields.adapter}` : "Upload an adapter"}
      testId="upload"
      trail={[
        { label: "Tenants", to: "/tenants" },
        { label: slug, to: tenantAddress(slug) },
        ...(search.has("adapter") && isNamed ? [{ label: fields.adapter, to: adapterAddress(slug, fields.adapter) }] : []),
      ]}
    >
      {progress.phase === "sealed" && progress.version !== null ? (
        <Outcome slug={slug} version={progress.version} onAnother={clear} />
      ) : (
        <Stack gap="md">
          <WishForm slug={slug} fields={fields} disabled={!isIdle} onChange={setFields} />
          {isIdle && isNamed && <StartedEarlier slug={slug} adapter={fields.adapter} />}
          {isIdle && <DropZone onFiles={take} isSmall={chosen.length > 0} />}
          {chosen.length > 0 && (
            <ChosenFiles files={progress.files} notSent={notSent} onClear={isRunning ? undefined : clear} />
          )}
          {sent.length > 0 && (
            <TransferPanel
              progress={progress}
              obstacle={nameProblem(fields.adapter) ?? problem ?? aliasProblem(fields)}
              onStart={start}
              onPause={upload.pause}
            />
          )}
        </Stack>
      )}
    </Page>
  );
}

function aliasProblem({ movesAlias, alias }: WishFields): string | null {
  return movesAlias && nameProblem(alias) !== null ? "Give the alias a name, or leave it out." : null;
}
