import { Button, Text } from "@mantine/core";
import { useState } from "react";

import type { Adapter } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { PlusIcon } from "@/components/icons";
import { Dialog } from "@/components/layout/dialog";
import { Panel } from "@/components/layout/panel";

import { AliasEditor } from "./alias-editor";
import { AliasRow } from "./alias-row";

const HELP =
  "Requests name an adapter, and an alias says which version answers: NAME means NAME@live. Versions never change, so moving an alias is how a new one goes into service and how an old one comes back.";

/** The aliases of one adapter, and the way to a new one. */
export function AliasPanel({ slug, adapter }: { slug: string; adapter: Adapter }) {
  const [isAdding, setAdding] = useState(false);
  const anyReady = adapter.versions.some(({ state }) => state === "ready");
  return (
    <Panel
      title="Aliases"
      help={HELP}
      testId="aliases"
      note={
        <Button
          size="compact-sm"
          variant="default"
          leftSection={<PlusIcon />}
          disabled={!anyReady}
          onClick={() => {
            setAdding(true);
          }}
        >
          Add alias
        </Button>
      }
    >
      {adapter.aliases.length === 0 ? (
        <Empty title="No alias yet">
          <Text fz="sm" c="dimmed">
            The first version that becomes ready gets the alias live.
          </Text>
        </Empty>
      ) : (
        adapter.aliases.map((alias) => <AliasRow key={alias.alias} slug={slug} adapter={adapter} alias={alias} />)
      )}
      <Dialog
        opened={isAdding}
        onClose={() => {
          setAdding(false);
        }}
        title="Add alias"
        size="lg"
      >
        <AliasEditor
          slug={slug}
          adapter={adapter}
          alias={null}
          onDone={() => {
            setAdding(false);
          }}
        />
      </Dialog>
    </Panel>
  );
}
