// What can be done to the cluster: each is explained first, in a dialog, and its outcome is shown there. Whether it may
// be done is for the server to say.
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
  if (now.leader === null) throw new Refused({ message: "nobody leads at the moment", hint: "try again when somebody does" });
  return ask(now.leader, { members });
};

const steps = answer => answer.result === "nothing_to_do" ? ["nothing: it is so already"] : (answer.steps ?? []).map(step => step.change);

async function priority(node) {
  const { nodes } = await json(await fetch("/members"));
  const own = nodes.find(listed => listed.node === node);
  const above = own && nodes.some(other => other.node !== node && other.role === "voter" && other.priority < own.priority);
  return above ? own.priority : null;
}

const field = (label, control) => make("label", {}, label, control);

// Each: title, what it does, how it is confirmed; `look` shows more before, `run` does it and says what came of it.
const ACTIONS = {
  lead: (node, now) => ({
    title: `Make node ${node} lead`, role: "operator", confirm: "Hand over",
    what: `Node ${now().leader} hands its leadership to node ${node} as soon as that is level. There is no election; clients see latency, and no errors.`,
    run: async () => `Node ${(await ask(now().leader, { transfer: { to: node } })).leader} leads.`,
  }),
  drain: (node, now) => ({
    title: `Drain node ${node}`, role: "operator", confirm: "Drain",
    what: `Leadership moves off node ${node} and does not return by itself; then it can be stopped for maintenance. It goes on voting and serving until you stop it. While it is down there is one spare less.`,
    look: async () => {
      const was = await priority(node);
      return [now().leader === node ? "leadership is handed to the most advanced of the others" : `node ${node} does not lead: nothing moves`,
        was === null ? "its priority keeps leadership away already" : `its priority, ${was}, is set to 0; give it back afterwards: quorate member priority ${node} ${was}`];
    },
    run: async () => {
      const was = await priority(node);
      if (was !== null) await wish(now(), { priority: [node, 0] });
      const { leader } = now().leader === node ? await ask(node, { transfer: {} }) : now();
      return `Node ${leader} leads.${was === null ? "" : ` Node ${node} had priority ${was}.`}`;
    },
  }),
  snapshot: (node, now) => ({
    title: `Snapshot of node ${node}`, role: "operator", confirm: "Take it",
    what: `Node ${node} writes its state to its disk, and then needs the log below that no more. It serves meanwhile. Others are not touched.`,
    run: async () => {
      const at = now().nodes.find(other => other.node === node)?.view?.applied ?? 0;
      for (;;) {
        try {
          const { slot, bytes: size } = await ask(node, { snapshot: { at } });
          return `It has everything below slot ${count(slot)}, ${bytes(size)}.`;
        } catch (error) {
          if (error.code !== "still_taking") throw error;
        }
      }
    },
  }),
  remove: (node, now) => ({
    title: `Remove node ${node}`, role: "admin", confirm: `Remove node ${node}`, isDanger: true,
    what: `Node ${node} leaves for good: its vote first, then it. If it leads, it hands over before. Its id is never used again, and its folder cannot come back. These steps would be taken:`,
    look: async () => steps(await wish(now(), { remove: node, dry_run: true })),
    run: async () => planned(await wish(now(), { remove: node })),
  }),
  add: (_, now) => {
    const peer = make("input", { id: "d-peer", required: "", placeholder: "10.0.0.4:7451", maxlength: "200" });
    const as = make("select", { id: "d-as" }, make("option", {}, "voter"), make("option", {}, "learner"), make("option", {}, "auxiliary"));
    return {
      title: "Add a node", role: "admin", confirm: "Keep an id for it", fields: [field("Its peer address", peer), field("As", as)],
      what: "An id is kept for a node that you then start there. It catches up without a vote, and gets its vote when it is level.",
      run: async () => {
        const { node } = await wish(now(), { add: { peer: peer.value, as: as.value } });
        const here = now().nodes.find(other => other.node === now().here)?.admin ?? location.host;
        return `Id ${node}. Start it: quorate start --data DIR --node ${node} --peer ${peer.value} --join ${here} --as ${as.value}`;
      },
    };
  },
  backup: (_, now) => ({
    title: "Back up", role: "operator", confirm: "Download",
    what: `Node ${now().here} writes what it has applied to a file, which your browser keeps: everything that clients stored, unencrypted. It serves meanwhile. Another node's backup is on that node's page. quorate restore makes a new cluster of it.`,
    run: async () => {
      const link = make("a", { href: "/backup", download: "quorate.backup" });
      document.body.append(link);
      link.click();
      link.remove();
      return "The browser fetches it. quorate restore checks that it came whole.";
    },
  }),
  cancel: (_, now) => ({
    title: "Cancel the plan", role: "admin", confirm: "Cancel the plan", isDanger: true,
    what: `What was done of it stays, the rest is not done: ${now().teller?.view?.plan?.what ?? "no plan"}.`,
    run: async () => planned(await wish(now(), { cancel: true })),
  }),
};

function planned(answer) {
  switch (answer.result) {
    case "planned": return `Plan ${answer.plan} is under way; the members above show how far it is.`;
    case "nothing_to_do": return "It is so already.";
    default: return "Done.";
  }
}

// `now` gives the cluster as it is then.
export async function open(name, node, now) {
  const dialog = $("dialog"), confirm = $("d-confirm"), result = $("d-result");
  const action = ACTIONS[name](node, now);
  const tell = (words, is) => { mark(result, "is", is); text(result, words); };
  text($("d-title"), action.title);
  text($("d-what"), `${action.what} Where there are users, this takes the role ${action.role}.`);
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
    tell("It is being done …", null);
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
