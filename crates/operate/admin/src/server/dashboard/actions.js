// Operator actions. A dialog explains each one first and shows its outcome. The server decides whether it is allowed.
import { $, make, mark, text } from "./elements.js";
import { bytes, count } from "./units.js";

class Refused extends Error {
  constructor({ code, message, hint }) {
    super(hint ? `${message}. ${hint}` : message);
    this.code = code;
  }
}

async function json(answer) {
  const document_ = await answer.json().catch(() => ({ error: { code: "bad_answer", message: `HTTP status ${answer.status}` } }));
  if (!answer.ok) throw new Refused(document_.error);
  return document_;
}

async function ask(node, act) {
  return json(await fetch("/act", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ node, act }) }));
}

const wish = (now, members) => {
  if (now.leader === null) throw new Refused({ message: "there is no leader at the moment", hint: "try again when there is one" });
  return ask(now.leader, { members });
};

const steps = answer => answer.result === "nothing_to_do" ? ["nothing to do"] : (answer.steps ?? []).map(step => step.change);

async function priority(node) {
  const { nodes } = await json(await fetch("/members"));
  const own = nodes.find(listed => listed.node === node);
  const above = own && nodes.some(other => other.node !== node && other.role === "voter" && other.priority < own.priority);
  return above ? own.priority : null;
}

const field = (label, control) => make("label", {}, label, control);

// Each action has a title, an explanation and a label for its button. `look` returns a preview; `run` executes the
// action and returns its outcome.
const ACTIONS = {
  lead: (node, now) => ({
    title: `Make node ${node} lead`, role: "operator", confirm: "Hand over",
    what: `Node ${now().leader} hands leadership to node ${node} as soon as that node is caught up. There is no election; clients see some latency but no errors.`,
    run: async () => `Node ${(await ask(now().leader, { transfer: { to: node } })).leader} leads.`,
  }),
  drain: (node, now) => ({
    title: `Drain node ${node}`, role: "operator", confirm: "Drain",
    what: `Leadership moves away from node ${node} and does not return by itself, so that you can stop the node for maintenance. It keeps voting and serving until you stop it. While it is down, the cluster tolerates one failure less.`,
    look: async () => {
      const was = await priority(node);
      return [now().leader === node ? "hand leadership to the most advanced follower" : `node ${node} does not lead: nothing moves`,
        was === null ? "its priority already keeps leadership away" : `set its priority from ${was} to 0; restore it afterwards: quorate member priority ${node} ${was}`];
    },
    run: async () => {
      const was = await priority(node);
      if (was !== null) await wish(now(), { priority: [node, 0] });
      const { leader } = now().leader === node ? await ask(node, { transfer: {} }) : now();
      return `Node ${leader} leads.${was === null ? "" : ` Node ${node} had priority ${was}.`}`;
    },
  }),
  snapshot: (node, now) => ({
    title: `Snapshot of node ${node}`, role: "operator", confirm: "Take snapshot",
    what: `Node ${node} writes its state to its disk, and then no longer needs the log below it. It keeps serving meanwhile. Other nodes are not affected.`,
    run: async () => {
      const at = now().nodes.find(other => other.node === node)?.view?.applied ?? 0;
      for (;;) {
        try {
          const { slot, bytes: size } = await ask(node, { snapshot: { at } });
          return `Snapshot complete: everything below slot ${count(slot)}, ${bytes(size)}.`;
        } catch (error) {
          if (error.code !== "still_taking") throw error;
        }
      }
    },
  }),
  remove: (node, now) => ({
    title: `Remove node ${node}`, role: "admin", confirm: `Remove node ${node}`, isDanger: true,
    what: `Node ${node} leaves permanently: it loses its vote, then its id. If it leads, it hands over first. Its id is never reused, and its folder cannot return. The steps:`,
    look: async () => steps(await wish(now(), { remove: node, dry_run: true })),
    run: async () => planned(await wish(now(), { remove: node })),
  }),
  add: (_, now) => {
    const peer = make("input", { id: "d-peer", required: "", placeholder: "10.0.0.4:7451", maxlength: "200" });
    const as = make("select", { id: "d-as" }, make("option", {}, "voter"), make("option", {}, "learner"), make("option", {}, "auxiliary"));
    return {
      title: "Add a node", role: "admin", confirm: "Reserve an id", fields: [field("Its peer address", peer), field("As", as)],
      what: "Reserves an id for a node that you then start at this address. It catches up without a vote, and gets its vote when it is caught up.",
      run: async () => {
        const { node } = await wish(now(), { add: { peer: peer.value, as: as.value } });
        const here = now().nodes.find(other => other.node === now().here)?.admin ?? location.host;
        return `Id ${node}. Start it: quorate start --data DIR --node ${node} --peer ${peer.value} --join ${here} --as ${as.value}`;
      },
    };
  },
  backup: (_, now) => ({
    title: "Back up", role: "operator", confirm: "Download",
    what: `Node ${now().here} writes what it has applied to a file, which your browser saves: everything that clients stored, unencrypted, but for the bytes of byte streams, which quorate backup --streams includes. It keeps serving meanwhile. For the backup of another node, open the page of that node. quorate restore creates a new cluster from it.`,
    run: async () => {
      const link = make("a", { href: "/backup", download: "quorate.backup" });
      document.body.append(link);
      link.click();
      link.remove();
      return "The download has started. quorate restore checks that it is complete.";
    },
  }),
  cancel: (_, now) => ({
    title: "Cancel the plan", role: "admin", confirm: "Cancel the plan", isDanger: true,
    what: `Completed steps remain, the rest is dropped: ${now().teller?.view?.plan?.what ?? "no plan"}.`,
    run: async () => planned(await wish(now(), { cancel: true })),
  }),
};

function planned(answer) {
  switch (answer.result) {
    case "planned": return `Plan ${answer.plan} is in progress; see the members above.`;
    case "nothing_to_do": return "Nothing to do.";
    default: return "Done.";
  }
}

// `now` returns the current state of the cluster.
export async function open(name, node, now) {
  const dialog = $("dialog"), confirm = $("d-confirm"), result = $("d-result");
  const action = ACTIONS[name](node, now);
  const tell = (words, is) => { mark(result, "is", is); text(result, words); };
  text($("d-title"), action.title);
  text($("d-what"), `${action.what} If there are users, this needs the role ${action.role}.`);
  text(confirm, action.confirm);
  text($("d-cancel"), "Cancel");
  mark(confirm, "kind", action.isDanger ? "danger" : null);
  confirm.hidden = false;
  confirm.disabled = Boolean(action.look);
  $("d-fields").replaceChildren(...(action.fields ?? []));
  $("d-steps").replaceChildren();
  tell("", null);
  $("d-cancel").onclick = () => dialog.close();
  $("d-form").onsubmit = async event => {
    event.preventDefault();
    if (confirm.disabled) return;
    confirm.disabled = true;
    tell("In progress …", null);
    try {
      tell(await action.run(), "good");
      confirm.hidden = true;
    } catch (error) {
      tell(`Refused: ${error.message}`, "bad");
      confirm.disabled = false;
    }
    text($("d-cancel"), "Close");
    $("d-cancel").focus();
  };
  dialog.showModal();
  if (!action.look) return;
  try {
    const list = make("ol", {}, ...(await action.look()).map(step => make("li", {}, step)));
    $("d-steps").replaceChildren(list);
    confirm.disabled = false;
  } catch (error) {
    tell(`Refused: ${error.message}`, "bad");
  }
}
