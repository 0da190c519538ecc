//! Test fixture: several nodes, each with a front end, that execute the same log.

use quorate_core::slot::Slot;
use quorate_kv::service::Service;
use quorate_replica::{
    front::{ConnectionId, Failure, Front as _},
    service::{Imaged, StateMachine as _},
};

use crate::common::{Asked, Node, Random, Told, World, request};

pub(crate) struct Group {
    pub(crate) nodes: Vec<Node>,
    /// True for killed nodes, which do not execute the log.
    pub(crate) down: Vec<bool>,
}

/// Index of the client's node, and the client's connection.
pub(crate) type Client = (usize, ConnectionId);

impl Group {
    pub(crate) fn new(worlds: Vec<World>) -> Self {
        let mut group = Self { nodes: Vec::new(), down: Vec::new() };
        for (node, mut world) in (1..).zip(worlds) {
            world.node = node;
            group.nodes.push(Node::new(world));
            group.down.push(false);
        }
        group
    }

    pub(crate) fn memory(nodes: usize) -> Self {
        Self::new((0..nodes).map(|_| World::memory()).collect())
    }

    pub(crate) fn connect(&mut self, node: usize) -> Client {
        (node, self.nodes[node].connect())
    }

    /// Sends a request without executing it.
    pub(crate) fn send(&mut self, (node, client): Client, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        self.nodes[node].feed(client, &request(&words));
    }

    /// Sends a request and executes everything. Returns the output for the client.
    pub(crate) fn say(&mut self, client: Client, text: &str) -> String {
        self.send(client, text);
        self.settle();
        self.take(client)
    }

    pub(crate) fn take(&mut self, (node, client): Client) -> String {
        self.nodes[node].take(client)
    }

    pub(crate) fn close(&mut self, (node, client): Client) {
        let Node { front, world, .. } = &mut self.nodes[node];
        front.handle_closed(client, world);
        self.nodes[node].input.remove(&client);
    }

    pub(crate) fn pass_ms(&mut self, ms: u64) {
        for node in &mut self.nodes {
            node.world.wall_ms += ms;
        }
    }

    /// Runs a turn of a node, as the reactor does.
    pub(crate) fn turn(&mut self, node: usize) {
        let Node { front, world, .. } = &mut self.nodes[node];
        front.run_turn(world);
        self.nodes[node].pump();
    }

    /// Executes a node's first pending request. Returns `false` if there is none.
    pub(crate) fn step(&mut self, from: usize) -> bool {
        if self.down[from] {
            return false;
        }
        let asked = self.nodes[from].world.asked.front();
        let Some(Asked::Write(tag, None, command)) = asked.cloned() else {
            let some = asked.is_some();
            if some {
                self.nodes[from].execute(0);
            }
            return some;
        };
        self.nodes[from].world.asked.pop_front();
        let mut said = Vec::new();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if self.down[number] {
                continue;
            }
            let reply = node.world.apply(&command);
            let Node { front, world, .. } = node;
            world
                .service
                .take_notices(&mut |subject, message| front.deliver_notice(subject, message));
            if number == from {
                world.told.push(Told::Written(tag, reply.clone()));
            }
            said.push(reply);
        }
        assert!(said.windows(2).all(|pair| pair[0] == pair[1]), "replies differ");
        true
    }

    /// Executes a node's first pending command, but loses the reply.
    pub(crate) fn lose_reply(&mut self, node: usize) {
        assert!(self.step(node));
        let told = &mut self.nodes[node].world.told;
        let Some(Told::Written(tag, _)) = told.pop() else {
            panic!("no write");
        };
        told.push(Told::Failed(tag, Failure::Unknown));
    }

    pub(crate) fn tell(&mut self, node: usize) -> bool {
        let told = !self.nodes[node].world.told.is_empty();
        if told {
            self.nodes[node].tell(0);
        }
        told
    }

    /// Executes everything that is due at the current time.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut moved = false;
            for node in 0..self.nodes.len() {
                if self.down[node] {
                    continue;
                }
                self.turn(node);
                while self.step(node) {
                    moved = true;
                }
                while self.tell(node) {
                    moved = true;
                }
            }
            if !moved {
                return self.agree();
            }
        }
    }

    /// Executes random steps on random nodes.
    pub(crate) fn stir(&mut self, random: &mut Random, steps: usize) {
        for _ in 0..steps {
            let node = random.below(self.nodes.len());
            if self.down[node] {
                continue;
            }
            match random.below(4) {
                0 => self.turn(node),
                1 => {
                    self.tell(node);
                }
                _ => {
                    self.step(node);
                }
            }
        }
    }

    /// Checks that all running nodes have the same state.
    pub(crate) fn agree(&self) {
        let up = self.nodes.iter().zip(&self.down).filter(|(_, down)| !**down);
        let digests: Vec<u128> = up.map(|(node, _)| node.world.service.digest()).collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "states differ");
    }

    /// Kills a node and disconnects its clients.
    pub(crate) fn kill(&mut self, node: usize) {
        self.down[node] = true;
    }

    /// Restarts a node with the state of another node and without clients.
    pub(crate) fn restart(&mut self, node: usize, from: usize) {
        let at = self.nodes[from].world.slot;
        let items = image(&mut self.nodes[from].world.service);
        let mut world = World::memory();
        load(&mut world.service, &items, at);
        world.slot = at;
        world.node = u32::try_from(node + 1).unwrap();
        world.wall_ms = self.nodes[from].world.wall_ms + 1;
        self.nodes[node] = Node::new(world);
        self.down[node] = false;
    }
}

pub(crate) fn image(service: &mut Service) -> Vec<Vec<u8>> {
    let mut items = Vec::new();
    assert!(service.begin_image());
    while service.next_image(40, &mut |item| items.push(item.to_vec())) == Imaged::More {}
    items
}

pub(crate) fn load(service: &mut Service, items: &[Vec<u8>], at: u64) {
    service.begin_load().unwrap();
    for item in items {
        service.load(item).unwrap();
    }
    service.finish_load(Slot(at), &[]).unwrap();
}
