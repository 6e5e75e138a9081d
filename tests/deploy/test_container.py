#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The worked example of cache/README.md, line by line: a folder stands for each image, another user for each USER, and
the last command runs on a root that cannot be written, without HOME, PATH and NVRTC, on the software GPU."""
import os
import re
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from deployment import DeploymentTest, command  # noqa: E402

README = os.path.join(os.path.dirname(__file__), "..", "..", "cache", "README.md")


class Container(DeploymentTest):
    simulator = None

    def example(self):
        with open(README, encoding="utf-8") as file:
            return re.search(r"```dockerfile\n(.*?)```", file.read(), re.S).group(1).splitlines()

    def record(self, path):
        """A run of the fleet, as it is before: compiling, with a cache of its own."""
        result = self.run_command(
            "verify", "--quick", "--seed=1", "--cache-dir", f"{self.home.name}/before",
            environment={**self.gpu, "ATTNS_RECORD": path},
        )
        self.assertEqual(result.returncode, 0, f"{result.stdout}\n{result.stderr}")
        with open(path, encoding="utf-8") as lines:
            return len(set(lines))

    def in_image(self, image, words):
        """Absolute paths are those of the image."""
        return [f"{image['root']}{word}" if word.startswith("/") else word for word in words]

    def run_in(self, image, line):
        words = shlex.split(line)
        self.assertEqual(words[0], "attn-scores")
        arguments = [self.public_command(), *self.in_image(image, words[1:])]
        environment = {**self.gpu, **image["env"], "HOME": "/"}
        result = self.run_as(image["user"], arguments, environment)
        self.assertEqual(result.returncode, 0, f"{line}\n{result.stdout}\n{result.stderr}")
        return result

    def copy(self, images, image, words):
        source = self.home.name
        if words[0].startswith("--from="):
            source = images[words.pop(0).removeprefix("--from=")]["root"]
        target = f"{image['root']}{words[-1]}"
        for name in words[:-1]:
            place = os.path.join(target, os.path.basename(name)) if target.endswith("/") else target
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copyfile(os.path.join(source, name.lstrip("/")), place)
            os.chmod(place, 0o644)

    def run_read_only(self, image, line):
        words = self.in_image(image, shlex.split(line))[1:]
        environment = {**self.gpu, **image["env"], "ATTNS_LIBNVRTC": "/nonexistent/libnvrtc.so"}
        variables = " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
        root = self.home.name
        script = (
            f"mount --bind {root} {root} && mount -o remount,ro,bind {root} && exec setpriv --reuid {image['user']} "
            f"--regid {image['user']} --clear-groups env -i {variables} {self.public_command()} {shlex.join(words)} -v -v"
        )
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=200, check=False
        )

    def test_the_example(self):
        self.needs_root()
        self.needs_mounts()
        self.public_command()
        # Every user can reach a copy of the software GPU.
        copy = f"{self.home.name}/{os.path.basename(self.simulator)}"
        shutil.copy(self.simulator, copy)
        os.chmod(copy, 0o755)
        self.gpu = {"ATTNS_LIBCUDA": copy, "ATTNS_LOAD_PTX": "1", "PTXSIM_SMS": "4"}
        used = self.record(f"{self.home.name}/used.txt")
        self.assertGreater(used, 20)

        images, image, last = {}, None, None
        for line in self.example():
            word, _, rest = line.partition(" ")
            if word == "FROM":
                name = rest.split()[-1]
                image = {"root": f"{self.home.name}/images/{name}", "env": {}, "user": 0}
                os.makedirs(f"{image['root']}/build")
                os.chown(f"{image['root']}/build", 1001, 1001)
                images[name] = image
            elif word == "COPY":
                self.copy(images, image, rest.split())
            elif word == "USER":
                image["user"] = int(rest)
            elif word == "ENV":
                name, _, value = rest.partition("=")
                image["env"][name] = self.in_image(image, [value])[0]
            elif word == "RUN":
                last = self.run_in(image, rest)
                if "--cache-dir /build/kernels" in rest and " precompile " in rest:
                    self.assertEqual(self.counts(last)["compiled"], used)
                elif " precompile " in rest:
                    self.assertEqual(self.counts(last), {"compiled": 0, "from disk": used, "failed": 0})
            elif word == "CMD":
                last = self.run_read_only(image, f"{rest} --seed=1")
            else:
                self.assertEqual(line, "")
        self.assertEqual(last.returncode, 0, f"{last.stdout}\n{last.stderr}")
        self.assertIn(" 0 failed", last.stdout)
        self.assertNotRegex(last.stderr, r"compiled \w+_paged_mqa|compiled paged_mqa")
        found = set(re.findall(r"(\w*paged_mqa_logits.* for \S+ \(PTX\)): from the read-only cache", last.stderr))
        self.assertEqual(len(found), used)

        # What is not in the bundle is an error that names the command.
        result = self.run_in_image_once(image)
        self.assertIn("compiling is forbidden", result.stderr)
        self.assertIn("ATTNS_LOAD_PTX=1 attn-scores precompile --kernel '", result.stderr)

    def run_in_image_once(self, image):
        kernel = "fp8_paged_mqa_logits h88 d128 b64 n5 out=bf16 acc=f32 epi=f32 for sm_90a (PTX)"
        result = self.run_as(
            image["user"], [self.public_command(), "precompile", "--kernel", kernel], {**self.gpu, **image["env"]}
        )
        self.assertEqual(result.returncode, 1)
        return result


if __name__ == "__main__":
    Container.simulator = sys.argv.pop(2)
    command.main(needs_nvrtc=True)
