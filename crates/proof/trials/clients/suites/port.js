// Redirects Redis' default port to the node's, on any host, so that tests that name no port reach the node and nothing
// leaves the machine.
const net = require('net');

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...words) {
  const options = Array.isArray(words[0]) ? words[0][0] : words[0];
  if (options && Number(options.port) === 6379) {
    options.port = Number(process.env.QUORATE_PORT);
    options.host = '127.0.0.1';
  }
  return connect.apply(this, words);
};
